import pytest

from oracle.engines.adapter import Refused
from oracle.engines.adapters.mlx_lm_settings import KNOBS
from tests.oracle.engines.adapters.mlx_lm_stand_in import Cache, put_in_place

SIMPLEST = {name: values[0] for name, values in KNOBS.items()}


@pytest.fixture
def placed(monkeypatch):
    return put_in_place(monkeypatch)


def test_open_reads_eos_from_the_configuration(placed):
    _, modules = placed
    assert modules.mlx_lm_model.OpenModel.open("folder", SIMPLEST).eos_token_ids == (7,)


@pytest.mark.parametrize(
    ("config", "names"), [("published", {"rope_theta": 500.0}), ("transformers 5", {})], ids=["published", "new"]
)
def test_open_names_settings_as_published_checkpoints_do_where_asked_to(placed, tmp_path, config, names):
    stand_in, modules = placed
    (tmp_path / "config.json").write_text('{"rope_parameters": {"rope_theta": 500.0}}', encoding="utf-8")
    modules.mlx_lm_model.OpenModel.open(str(tmp_path), {**SIMPLEST, "config": config, "way": "speculative"})
    assert stand_in.names == [names, names]  # of the model and of its draft


def test_open_refuses_a_folder_in_the_words_of_mlx_lm(placed):
    stand_in, modules = placed
    stand_in.load_error = ValueError("Model type bloom not supported.")
    with pytest.raises(Refused, match="ValueError: Model type bloom not supported"):
        modules.mlx_lm_model.OpenModel.open("folder", SIMPLEST)


def test_open_refuses_to_batch_caches_that_cannot_be_merged(placed):
    stand_in, modules = placed
    stand_in.can_merge = False
    modules.mlx_lm_model.OpenModel.open("folder", SIMPLEST)
    with pytest.raises(Refused, match="cannot be merged"):
        modules.mlx_lm_model.OpenModel.open("folder", {**SIMPLEST, "way": "batch"})


def test_open_refuses_a_draft_for_caches_that_cannot_be_trimmed(placed):
    stand_in, modules = placed
    stand_in.can_trim = False
    with pytest.raises(Refused, match="requires a trimmable prompt cache"):
        modules.mlx_lm_model.OpenModel.open("folder", {**SIMPLEST, "way": "speculative"})


def test_a_draft_has_its_cache_behind_that_of_the_model(placed):
    _, modules = placed
    assert len(modules.mlx_lm_model.OpenModel.open("folder", {**SIMPLEST, "way": "speculative"}).new_cache()) == 2


@pytest.mark.parametrize("prompt_cache", ["reuse", "saved"])
def test_kept_prompts_are_found_again(placed, prompt_cache):
    _, modules = placed
    opened = modules.mlx_lm_model.OpenModel.open("folder", {**SIMPLEST, "prompt_cache": prompt_cache})
    opened.keep((1, 2), [Cache((1, 2))])
    assert opened.fetch((1, 2, 3))[1] == 2
    assert opened.fetch((4, 2, 3)) == (None, 0)
    opened.close()


def test_nothing_is_kept_where_it_is_not_asked_for(placed):
    _, modules = placed
    opened = modules.mlx_lm_model.OpenModel.open("folder", SIMPLEST)
    opened.keep((1, 2), [Cache((1, 2))])
    assert opened.fetch((1, 2, 3)) == (None, 0)


def test_a_prompt_without_tokens_is_not_kept(placed):
    _, modules = placed
    opened = modules.mlx_lm_model.OpenModel.open("folder", {**SIMPLEST, "prompt_cache": "reuse"})
    opened.keep((), [Cache()])
    assert opened.kept.entries == {}
