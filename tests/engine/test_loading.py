"""A checkpoint as an engine needs it."""

import pytest

from refinfer import LLM
from refinfer.engine import LoadedModel
from refinfer.errors import CheckpointError


def test_loaded_model_knows_its_tokenizer_and_what_ends_a_request(text_folder):
    loaded = LoadedModel.load(text_folder)
    assert loaded.eos_token_ids == (1, 6)
    assert loaded.tokenizer is not None
    assert str(text_folder) in loaded.name


def test_engines_share_a_model_and_no_request(text_folder):
    loaded = LoadedModel.load(text_folder)
    first, second = LLM(loaded, cache="paged"), LLM(loaded, cache="continuous")
    assert first.model is second.model
    first.engine.add_request("a", [5])
    assert not second.engine.has_unfinished_requests()


def test_loading_refuses_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(CheckpointError):
        LoadedModel.load(tmp_path / "absent")
