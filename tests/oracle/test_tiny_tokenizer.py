import pytest
from transformers import AutoTokenizer

from oracle.checkpoints import CheckpointSpec, write_checkpoint
from oracle.errors import ScenarioError
from oracle.tiny_tokenizer import (
    BOS_TOKEN_ID,
    END_OF_TURN_TOKEN_ID,
    EOS_TOKEN_ID,
    PAD_TOKEN_ID,
    SPECIAL_TOKENS,
    TOKENIZER_SIZE,
    write_tokenizer,
)

CONVERSATION = [{"role": "user", "content": " hi\n"}]


@pytest.fixture(scope="module", params=["alone", "beside a model"])
def tokenizer(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    if request.param == "alone":
        write_tokenizer(folder, TOKENIZER_SIZE)
    else:
        write_checkpoint(CheckpointSpec(vocab_size=TOKENIZER_SIZE + 4, with_tokenizer=True), folder)
    return AutoTokenizer.from_pretrained(folder)


def test_tokenizer_has_the_ids_it_says(tokenizer):
    assert len(tokenizer) == TOKENIZER_SIZE
    assert tokenizer.convert_tokens_to_ids(list(SPECIAL_TOKENS)) == list(range(len(SPECIAL_TOKENS)))
    ids = (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id)
    assert ids == (BOS_TOKEN_ID, EOS_TOKEN_ID, PAD_TOKEN_ID)
    assert SPECIAL_TOKENS[END_OF_TURN_TOKEN_ID] == "<|end|>"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "the thing  and 1200 worlds .",
        "élan, été",
        "日本語 😀👍🏽",
        "\x00\t\n\x7f \r\n",
        "".join(map(chr, range(0x20, 0x180))),
    ],
)
def test_any_text_comes_back(tokenizer, text):
    assert tokenizer.decode(tokenizer.encode(text), skip_special_tokens=True) == text


def test_every_byte_is_a_token(tokenizer):
    texts = [bytes([byte]).decode("latin-1") for byte in range(256)]
    ids = {token_id for text in texts for token_id in tokenizer.encode(text, add_special_tokens=False)}
    assert ids <= set(range(len(SPECIAL_TOKENS), TOKENIZER_SIZE))
    assert all(tokenizer.convert_ids_to_tokens(token_id) for token_id in range(TOKENIZER_SIZE))


def test_tokens_can_be_several_characters(tokenizer):
    assert [tokenizer.decode([token_id]) for token_id in tokenizer.encode("of the", add_special_tokens=False)] == [
        "o",
        "f",
        " the",
    ]


@pytest.mark.parametrize(("text", "num_tokens"), [("😀", 2), ("ét", 2), ("日本", 4)])
def test_characters_are_split_across_tokens(tokenizer, text, num_tokens):
    token_ids = tokenizer.encode(text, add_special_tokens=False)
    assert len(token_ids) == num_tokens
    assert all("\ufffd" in tokenizer.decode([token_id]) for token_id in token_ids)
    assert tokenizer.decode(token_ids) == text


def test_encoding_begins_with_bos(tokenizer):
    assert tokenizer.encode("a")[0] == BOS_TOKEN_ID
    assert BOS_TOKEN_ID not in tokenizer.encode("a", add_special_tokens=False)


def test_special_token_strings_become_their_ids(tokenizer):
    text = "a".join(SPECIAL_TOKENS)
    special_ids = [token_id for token_id in tokenizer.encode(text) if token_id < len(SPECIAL_TOKENS)]
    assert special_ids == [BOS_TOKEN_ID, *range(len(SPECIAL_TOKENS))]


def test_chat_template_begins_with_bos_once(tokenizer):
    token_ids = tokenizer.apply_chat_template(CONVERSATION, add_generation_prompt=True)["input_ids"]
    assert [tokenizer.decode([token_id]) for token_id in token_ids] == [
        "<s>",
        "<|user|>",
        "h",
        "i",
        "<|end|>",
        "<|assistant|>",
    ]


def test_chat_text_encoded_as_plain_text_doubles_bos(tokenizer):
    """The trap is set: who renders the template and then encodes the text begins twice."""
    text = tokenizer.apply_chat_template(CONVERSATION, tokenize=False)
    assert tokenizer.encode(text)[:3] == [BOS_TOKEN_ID, BOS_TOKEN_ID, SPECIAL_TOKENS.index("<|user|>")]


def test_write_tokenizer_refuses_a_vocabulary_that_is_too_small(tmp_path):
    with pytest.raises(ScenarioError, match="too small"):
        write_tokenizer(tmp_path, TOKENIZER_SIZE - 1)
