"""Text to ids and back, against the reference's tokenizer."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from oracle.checkpoints import CheckpointSpec, cached_checkpoint
from oracle.reference import ReferenceTokenizer
from oracle.strategies import texts
from oracle.text_properties import check_detokenising, check_prompt_ids
from oracle.tiny_tokenizer import SPECIAL_TOKENS, TOKENIZER_SIZE
from refinfer.tokenizer import Tokenizer

SPEC = CheckpointSpec(num_layers=1, vocab_size=TOKENIZER_SIZE, with_tokenizer=True)
MESSAGES: st.SearchStrategy[dict[str, str]] = st.builds(
    dict, role=st.sampled_from(("system", "user", "assistant")), content=texts()
)


@pytest.fixture(scope="module")
def folder():
    """A checkpoint with the tiny tokenizer."""
    return cached_checkpoint(SPEC)


@example(text="<s>begun already</s>")
@example(text="<|user|>who speaks?<|end|>")
@example(text=" the  the\n\nthe ")
@example(text="e\u0301 \u00e9 \U0001f468\u200d\U0001f469\u200d\U0001f467")
@given(text=texts())
def test_text_matches_reference_prompt_ids(folder, text):
    check_prompt_ids(folder, [text])


@pytest.mark.parametrize("special_token", SPECIAL_TOKENS)
def test_name_of_a_special_token_matches_reference_prompt_ids(folder, special_token):
    """Alone, doubled, inside a word, and cut in two."""
    cut = f"{special_token[:2]} {special_token[2:]}"
    check_prompt_ids(folder, [special_token, special_token * 2, f"a{special_token}b", cut])


@given(messages=st.lists(MESSAGES, min_size=1, max_size=4))
def test_chat_matches_reference_prompt_ids(folder, messages):
    own = Tokenizer.from_folder(folder).encode_chat(messages)
    assert own == ReferenceTokenizer.open(folder).encode_chat(messages)


@given(token_ids=st.lists(st.integers(0, TOKENIZER_SIZE - 1), max_size=20))
def test_detokenising_step_by_step_matches_reference_text(folder, token_ids):
    """Ids at random: halves of characters, and bytes that are none."""
    check_detokenising(folder, [token_ids])


@given(text=texts())
def test_detokenising_step_by_step_gives_the_text_back(folder, text):
    check_detokenising(folder, [ReferenceTokenizer.open(folder).encode(text)])
