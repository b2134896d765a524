"""One character a token: texts stand for token ids, one way and no other."""

import json

import pytest
from tokenizers import Tokenizer

from oracle.engines.adapters.vllm_tokenizer import read_checkpoint, symbol_of, text_of, write_symbol_tokenizer


@pytest.fixture
def tokenizer(tmp_path):
    return Tokenizer.from_file(str(write_symbol_tokenizer(tmp_path, 300, (7, 19)) / "tokenizer.json"))


@pytest.mark.parametrize("token_ids", [[0], [5, 5, 5], [299, 0, 7, 19, 8], list(range(300))])
def test_text_is_read_back_as_the_same_tokens(tokenizer, token_ids):
    assert tokenizer.encode(text_of(token_ids), add_special_tokens=False).ids == token_ids


def test_every_token_has_a_symbol_of_its_own():
    assert len({symbol_of(token_id) for token_id in range(200_000)}) == 200_000


def test_the_first_eos_is_the_one_that_the_tokenizer_names(tmp_path):
    settings = json.loads((write_symbol_tokenizer(tmp_path, 50, (7, 19)) / "tokenizer_config.json").read_text())
    assert settings["eos_token"] == symbol_of(7)


def test_a_tokenizer_may_have_no_eos(tmp_path):
    settings = json.loads((write_symbol_tokenizer(tmp_path, 50, ()) / "tokenizer_config.json").read_text())
    assert "eos_token" not in settings


@pytest.mark.parametrize(
    ("eos", "generation", "expected"),
    [
        (3, None, (3,)),
        ([3, 4], None, (3, 4)),
        (None, None, ()),
        (3, {"eos_token_id": [5, 6]}, (5, 6)),
        (3, {}, (3,)),
    ],
)
def test_read_checkpoint_gives_what_ends_a_request(tmp_path, eos, generation, expected):
    (tmp_path / "config.json").write_text(json.dumps({"vocab_size": 131, "eos_token_id": eos}))
    if generation is not None:
        (tmp_path / "generation_config.json").write_text(json.dumps(generation))
    assert read_checkpoint(tmp_path) == (131, expected)
