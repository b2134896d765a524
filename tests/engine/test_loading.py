"""A checkpoint as an engine needs it."""

import json
import shutil

import pytest

from oracle.case import Case
from oracle.scenario import RequestSpec, Scenario
from refinfer import LLM, SamplingParams
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


@pytest.mark.parametrize(
    ("generation_config", "eos_token", "expected"),
    [
        ({"eos_token_id": 5}, "<|end|>", (5, 6)),
        ({"eos_token_id": [6, 5]}, "<|end|>", (6, 5)),
        ({}, "<|end|>", (1, 6)),
        ({"eos_token_id": 5}, {"content": "<|end|>", "special": True, "__type": "AddedToken"}, (5, 6)),
        ({"eos_token_id": 5}, None, (5,)),
    ],
)
def test_the_end_of_the_tokenizer_counts_beside_that_of_the_settings(
    text_folder, tmp_path, generation_config, eos_token, expected
):
    """ChatML fine-tunes were published with an `eos_token` that generation_config.json does not name; as in vLLM."""
    folder = shutil.copytree(text_folder, tmp_path / "checkpoint")
    for name, changes in (("tokenizer_config.json", {"eos_token": eos_token}), ("config.json", {"eos_token_id": 1})):
        (folder / name).write_text(json.dumps(json.loads((folder / name).read_text()) | changes))
    (folder / "generation_config.json").write_text(json.dumps(generation_config))
    llm = LLM(folder, cache="none")
    assert llm.eos_token_ids == expected
    case = Case(Scenario((RequestSpec((5,), max_tokens=1),), checkpoint=None), folder)
    assert set(case.eos_token_ids) == set(expected), "the harness stops where the engine does"
    for token_id in range(1, 8):
        params = SamplingParams(max_tokens=3, logit_bias={token_id: 1000.0}, min_tokens=0)
        (completion,) = llm.generate([5, 9], params)[0].outputs
        assert (completion.token_ids == [token_id]) == (completion.finish_reason == "stop") == (token_id in expected)
