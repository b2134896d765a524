"""What a fetched SmolLM2 is, and says."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refinfer.cli import main
from refinfer.errors import CheckpointError
from refinfer.hub import resolve_model
from refinfer.hub.known_models import known_model
from refinfer.hub.manifest import find_damage, sha256_of
from refinfer.tokenizer import IncrementalDetokenizer, Tokenizer

pytestmark = pytest.mark.real_model

WEIGHTS_SHA256 = "a672150fb4f99d7c8f4168cecdd464069c0ef3a37d8113f22ddb9d48031d03cd"
"""Of the file that transformers 5.24 writes for the same GGUF file, byte for byte."""


@pytest.fixture(scope="module")
def folder():
    try:
        return resolve_model("smollm2")
    except CheckpointError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def smollm2_tokenizer(folder):
    return Tokenizer.from_folder(folder)


def test_smollm2_is_undamaged(folder):
    assert find_damage(folder, known_model("smollm2"), with_hashes=True) is None


def test_smollm2_matches_reference_weights(folder):
    assert sha256_of(folder / "model.safetensors") == WEIGHTS_SHA256


@settings(deadline=None)
@given(token_ids=st.lists(st.integers(0, 49151), max_size=200))
def test_smollm2_pieces_together_equal_decoding_everything(smollm2_tokenizer, token_ids):
    detokenizer = IncrementalDetokenizer(smollm2_tokenizer)
    pieces = [detokenizer.push(token_id) for token_id in token_ids] + [detokenizer.finish()]
    assert "".join(pieces) == smollm2_tokenizer.decode(token_ids)


def test_smollm2_knows_the_capital_of_france(folder, capsys):
    assert main(["generate", "--model", str(folder), "--chat", "What is the capital of France?"]) == 0
    assert capsys.readouterr().out == "The capital of France is Paris.\n"
