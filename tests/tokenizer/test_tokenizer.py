"""Ids and text are what tokenizer.json says; what cannot be read or said is refused by name."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from transformers import AutoTokenizer

from refinfer.errors import CheckpointError, ConfigError, RequestError
from refinfer.tokenizer import IncrementalDetokenizer, Tokenizer

TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if message['role'] == 'tool' %}{{ raise_exception('no tools here') }}{% endif %}"
    "[{{ message['role'] }}]{{ message['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}[answer]{% endif %}"
)
HELLO = [{"role": "user", "content": "hello"}]


@pytest.fixture(scope="module")
def folder(byte_level, tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoint")
    byte_level.save(folder)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return folder


@pytest.fixture(scope="module")
def from_folder(folder):
    return Tokenizer.from_folder(folder)


@pytest.fixture(scope="module")
def reference(folder):
    return AutoTokenizer.from_pretrained(folder)


@settings(deadline=None)
@given(
    text=st.text(max_size=40) | st.lists(st.sampled_from(["<s>", "</s>", "[tool]", " ", "a", "\ufffd"])).map("".join)
)
def test_encode_matches_reference_token_ids(from_folder, reference, text):
    """Names of special tokens in the text and a beginning-of-sequence token of its own included."""
    assert from_folder.encode(text) == reference(text)["input_ids"]


@settings(deadline=None)
@given(data=st.data())
def test_decode_matches_reference_text(tokenizer, data):
    token_ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size + 2), max_size=40), label="token ids")
    reference = tokenizer._hugging_face_tokenizer
    assert tokenizer.decode(token_ids) == reference.decode(token_ids, skip_special_tokens=True)


def test_encode_chat_matches_reference_token_ids(from_folder, reference):
    messages = [*HELLO, {"role": "assistant", "content": "hi </s>"}, {"role": "user", "content": "<s> é"}]
    expected = reference.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    assert from_folder.encode_chat(messages) == expected


def test_encode_chat_begins_with_one_beginning_of_sequence(from_folder, reference):
    """The template writes one, and so would the tokenizer for plain text."""
    assert from_folder.encode_chat(HELLO).count(reference.bos_token_id) == 1


def test_tokenizer_knows_its_size_and_end(from_folder, reference):
    assert from_folder.vocab_size == len(reference)
    assert from_folder.eos_token_id == reference.eos_token_id


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer.model", "vocab.json"])
def test_exists_sees_each_kind_of_vocabulary(tmp_path, name):
    assert not Tokenizer.exists(tmp_path)
    (tmp_path / name).touch()
    assert Tokenizer.exists(tmp_path)


def test_from_folder_refuses_a_folder_without_tokenizer(tmp_path):
    with pytest.raises(CheckpointError, match=r"has no tokenizer .* copy tokenizer.json there") as caught:
        Tokenizer.from_folder(tmp_path)
    assert caught.value.folder == tmp_path


@pytest.mark.parametrize(
    "contents", ["{", "{}", '{"version": "1.0", "added_tokens": [], "model": {"type": "nonsense"}}']
)
def test_from_folder_refuses_a_malformed_tokenizer(tmp_path, contents):
    (tmp_path / "tokenizer.json").write_text(contents)
    with pytest.raises(CheckpointError, match=r"cannot be read: .*; download it again"):
        Tokenizer.from_folder(tmp_path)


def test_from_folder_runs_no_code_of_a_checkpoint(from_folder, folder, tmp_path):
    """What tokenizer.json says needs none; and where there is no such file, code is refused."""
    settings = {"auto_map": {"AutoTokenizer": ["code.Tokenizer", None]}}
    (tmp_path / "tokenizer.json").write_bytes((folder / "tokenizer.json").read_bytes())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    (tmp_path / "code.py").write_text("raise SystemExit('code of the checkpoint was run')")
    assert Tokenizer.from_folder(tmp_path).encode("the dog") == from_folder.encode("the dog")
    (tmp_path / "tokenizer.json").rename(tmp_path / "vocab.json")
    with pytest.raises(CheckpointError, match="custom code"):
        Tokenizer.from_folder(tmp_path)


def test_from_folder_says_what_a_sentencepiece_model_needs(tmp_path):
    (tmp_path / "tokenizer.model").write_bytes(b"no model")
    with pytest.raises(CheckpointError, match=r"put tokenizer\.json there, or install sentencepiece"):
        Tokenizer.from_folder(tmp_path)


@pytest.mark.parametrize("template", [None, {"tools": TEMPLATE}])
def test_encode_chat_refuses_a_checkpoint_without_chat_template(folder, template):
    tokenizer = Tokenizer.from_folder(folder)
    tokenizer._hugging_face_tokenizer.chat_template = template
    with pytest.raises(ConfigError, match="has no chat template; write the prompt as text"):
        tokenizer.encode_chat(HELLO)


@pytest.mark.parametrize("messages", [[], [{"role": "user"}], [{"content": "x"}], [*HELLO, {"role": "user"}]])
def test_encode_chat_refuses_incomplete_messages(from_folder, messages):
    with pytest.raises(
        RequestError, match="give a list of at least one, each with a text for 'role' and for 'content'"
    ):
        from_folder.encode_chat(messages)


def test_encode_chat_refuses_what_the_template_refuses(from_folder):
    with pytest.raises(RequestError, match="the chat template refuses these messages: no tools here"):
        from_folder.encode_chat([{"role": "tool", "content": "x"}])


def test_encode_refuses_half_a_surrogate_pair(from_folder):
    with pytest.raises(RequestError, match="half of a surrogate pair at position 1"):
        from_folder.encode("a\ud83d")
    with pytest.raises(RequestError, match="half of a surrogate pair at position 0"):
        from_folder.encode_chat([{"role": "user", "content": "\ud83d"}])


def test_cleans_up_follows_the_checkpoint_but_not_for_byte_pairs(tokenizer_by_kind):
    assert tokenizer_by_kind["metaspace"].cleans_up
    assert not tokenizer_by_kind["byte_level"].cleans_up
    assert not tokenizer_by_kind["byte_fallback"].cleans_up


def test_saved_tokenizer_gives_the_same_ids(from_folder, tmp_path):
    from_folder.save(tmp_path)
    again = Tokenizer.from_folder(tmp_path)
    assert again.encode("déjà vu 🙂 </s>") == from_folder.encode("déjà vu 🙂 </s>")
    assert again.encode_chat(HELLO) == from_folder.encode_chat(HELLO)


LABELS = (
    None,
    "PreTrainedTokenizerFast",
    "LlamaTokenizer",
    "LlamaTokenizerFast",
    "CodeLlamaTokenizer",
    "GPT2TokenizerFast",
    "BertTokenizer",
    "T5TokenizerFast",
    "DeepseekTokenizer",
)
SETTINGS = {
    "tokenizer_class": st.sampled_from(LABELS),
    "add_bos_token": st.booleans(),
    "add_eos_token": st.booleans(),
    "add_prefix_space": st.booleans(),
    "legacy": st.booleans(),
    "use_default_system_prompt": st.booleans(),
    "model_max_length": st.sampled_from([4, 10**30]),
}
CONFIGS: tuple[dict[str, object] | None, ...] = (
    None,
    {},
    {"model_type": "llama"},
    {"model_type": "llama", "hidden_size": 36, "num_attention_heads": 24},
)


@settings(deadline=None)
@given(
    labels=st.fixed_dictionaries({}, optional=SETTINGS),
    config=st.sampled_from(CONFIGS),
    text=st.text(max_size=30)
    | st.lists(st.sampled_from(["the", " ", "  ", "▁", "é", "</s>", "🙂", "\n"])).map("".join),
)
def test_text_is_what_tokenizer_json_says_whatever_lies_beside_it(tokenizer, tmp_path_factory, labels, config, text):
    """Ids, text, and text as it comes; DeepSeek-R1-Distill-Llama calls a byte-level tokenizer LlamaTokenizerFast."""
    folder = tmp_path_factory.mktemp("labelled")
    tokenizer.save(folder)
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | labels))
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    raw = Backend.from_file(str(folder / "tokenizer.json"))
    own = Tokenizer.from_folder(folder)
    token_ids = raw.encode(text).ids
    assert own.encode(text) == token_ids
    assert own.decode_uncleaned(token_ids) == raw.decode(token_ids)
    detokenizer = IncrementalDetokenizer(own)
    assert "".join([*map(detokenizer.push, token_ids), detokenizer.finish()]) == own.decode(token_ids)


def test_decode_token_keeps_the_blank_and_names_special_tokens(tokenizer_by_kind):
    of = {kind: ids_by_token(tokenizer) for kind, tokenizer in tokenizer_by_kind.items()}
    expected = {
        "byte_level": {"Ġ": " ", "t": "t", "</s>": "</s>", "Ã": "\ufffd", "[tool]": "[tool]"},
        "byte_fallback": {"▁": " ", "e": "e", "<0x41>": "A", "<0xE6>": "\ufffd", "<s>": "<s>", "▁▁": "  "},
        "metaspace": {"▁the": " the", "n't": "n't", "</s>": "</s>"},
        "word_piece": {"a": " a", "##b": "b"},
        "pattern_in_decoder": {"▁": " ", "a": "a"},
    }
    given_texts = {
        kind: {token: tokenizer_by_kind[kind].decode_token(of[kind][token]) for token in texts}
        for kind, texts in expected.items()
    }
    assert given_texts == expected


def test_decode_token_tells_tokens_apart_whose_text_alone_is_one(byte_fallback):
    """All but bytes that are no character by themselves."""
    texts = [byte_fallback.decode_token(token_id) for token_id in range(byte_fallback.vocab_size)]
    whole = [text for text in texts if text and text != "\ufffd"]
    spelled = {chr(byte) for byte in range(128)}
    twice = {text for text in whole if whole.count(text) > 1}
    assert twice <= spelled, "an ASCII character has a token of its own beside its byte token"
    assert byte_fallback.decode_token(byte_fallback.vocab_size + 5) == ""


def ids_by_token(tokenizer):
    return tokenizer._hugging_face_tokenizer.get_vocab()


@pytest.mark.usefixtures("_without_shape_checks")
def test_encode_chat_refuses_what_is_no_conversation(from_folder):
    for messages in ("text", ["text"], [HELLO], [*HELLO, None], b"text", None, 3, HELLO[0]):
        with pytest.raises(RequestError, match=r"messages are .*; give a list of at least one"):
            from_folder.encode_chat(messages)


@pytest.mark.parametrize(
    "template",
    [
        "{{ 1 + messages[0]['content'] }}",
        "{{ messages[0]['content'].missing.deep }}",
        "{{ messages[7]['content'] }}",
        "{{ 1 // 0 }}",
        "{{ raise_exception('never') }}",
        "{% for",
        "{{ messages[0]['content'] | no_such_filter }}",
        "{{ '\ud83d' }}",
    ],
)
def test_encode_chat_refuses_what_its_template_cannot_do(folder, template):
    tokenizer = Tokenizer.from_folder(folder)
    tokenizer._hugging_face_tokenizer.chat_template = template
    with pytest.raises(RequestError, match="the chat template refuses these messages: "):
        tokenizer.encode_chat(HELLO)
