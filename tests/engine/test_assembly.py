"""Which parts belong to a cache, and how many blocks there are."""

import inspect

import pytest

from oracle.checkpoints import CheckpointSpec, cached_checkpoint
from refinfer import LLM, SamplingParams
from refinfer.config import EngineConfig, engine_config
from refinfer.config.engine_config import CACHES, PREEMPTIONS, SCHEDULINGS
from refinfer.engine import LoadedModel, assembly
from refinfer.engine.assembly import (
    block_space,
    load_draft_model,
    make_core,
    make_proposer,
    make_runner,
    make_scheduler,
)
from refinfer.engine.model_runner import ContinuousRunner, PagedRunner, RecomputeRunner, StaticRunner
from refinfer.errors import CheckpointError, ConfigError, InvariantError
from refinfer.scheduler import BlockSpace, ContinuousScheduler, StaticScheduler
from refinfer.speculative import DraftModelProposer, NgramProposer

PARTS_BY_CACHE = {
    "none": (StaticScheduler, RecomputeRunner),
    "static": (StaticScheduler, StaticRunner),
    "continuous": (ContinuousScheduler, ContinuousRunner),
    "paged": (ContinuousScheduler, PagedRunner),
}


@pytest.fixture
def new_cache(monkeypatch):
    """A cache that was added to the list of caches, and to nothing else."""
    monkeypatch.setattr(engine_config, "CACHES", (*CACHES, "radix"))
    return EngineConfig(cache="radix")


@pytest.mark.parametrize("cache", CACHES)
def test_make_core_joins_the_scheduler_and_the_runner_of_each_cache(model, cache):
    core = make_core(LoadedModel("", model, None, ()), EngineConfig(cache=cache), 10)
    assert (type(core.scheduler), type(core.runner)) == PARTS_BY_CACHE[cache]


def test_make_scheduler_refuses_a_cache_that_was_only_listed(new_cache):
    with pytest.raises(InvariantError, match="cache 'radix' has no scheduler; none, static, continuous, p") as caught:
        make_scheduler(new_cache, None)
    assert caught.value.cache == "radix"


@pytest.mark.parametrize("space", [None, BlockSpace(8, 4)], ids=["without blocks", "with blocks"])
def test_make_runner_refuses_a_cache_that_was_only_listed(model, new_cache, space):
    with pytest.raises(InvariantError, match=r"cache 'radix' has no runner; .* static, continuous, paged") as caught:
        make_runner(new_cache, model, 10, space)
    assert caught.value.cache == "radix"


def test_make_runner_refuses_the_paged_cache_without_blocks(model):
    with pytest.raises(InvariantError, match="cache 'paged' is run without blocks"):
        make_runner(EngineConfig(), model, 10)


@pytest.mark.parametrize(("option", "values"), [("scheduling", SCHEDULINGS), ("preemption", PREEMPTIONS)])
def test_make_scheduler_tells_every_value_of_a_policy_from_the_others(option, values):
    """The scheduler is told them as yes or no, which a third one would be lost in."""
    schedulers = [vars(make_scheduler(EngineConfig(**{option: value}), None)) for value in values]
    policies = [tuple(own for own in parts.values() if isinstance(own, bool)) for parts in schedulers]
    assert len(set(policies)) == len(values)


def test_block_space_is_told_all_that_it_takes(model, monkeypatch):
    told = {}

    def recorded(*arguments, **named):
        told.update(inspect.signature(BlockSpace).bind(*arguments, **named).arguments)
        return BlockSpace(*arguments, **named)

    monkeypatch.setattr(assembly, "BlockSpace", recorded)
    block_space(model, EngineConfig(num_blocks=3), 10)
    assert set(told) == set(inspect.signature(BlockSpace).parameters)


def test_host_memory_takes_as_many_blocks_as_the_pool_unless_told_otherwise(model):
    assert block_space(model, EngineConfig(num_blocks=7), 10).num_swap_blocks == 7
    assert block_space(model, EngineConfig(num_blocks=7, num_swap_blocks=0), 10).num_swap_blocks == 0
    assert block_space(model, EngineConfig(num_blocks=7, enable_prefix_caching=False), 10).prefix is None


@pytest.fixture(scope="session")
def draft_folder():
    """Writes a checkpoint that may guess for the model: one layer, another seed."""

    def write(**changes):
        widths = {"hidden_size": 16, "intermediate_size": 24, "head_dim": 8, "vocab_size": 29}
        return str(cached_checkpoint(CheckpointSpec(**{"seed": 1, "num_layers": 1} | widths | changes)))

    return write


def test_draft_model_with_another_vocabulary_is_refused(model, draft_folder):
    folder = draft_folder(vocab_size=31)
    with pytest.raises(
        ConfigError, match=r"has a vocabulary of 31 tokens and the model one of 29; .* speculative='ngram'"
    ) as caught:
        load_draft_model(EngineConfig(speculative=folder), model)
    assert (caught.value.vocab_size, caught.value.draft_vocab_size, caught.value.speculative) == (29, 31, folder)


def test_draft_model_is_loaded_where_the_settings_name_one(model, draft_folder):
    loaded = load_draft_model(EngineConfig(speculative=draft_folder(), dtype="float64"), model)
    assert loaded is not None
    assert (loaded.config.num_layers, loaded.dtype) == (1, model.dtype)
    assert load_draft_model(EngineConfig(), model) is None
    assert load_draft_model(EngineConfig(speculative="ngram"), model) is None


def test_draft_model_that_is_not_there_is_refused(model, tmp_path):
    with pytest.raises(CheckpointError, match="is not a folder"):
        load_draft_model(EngineConfig(speculative=str(tmp_path / "absent")), model)


def test_make_proposer_refuses_a_draft_model_that_was_not_loaded(model):
    with pytest.raises(InvariantError, match="speculative='a folder' names a draft model, and none was loaded"):
        make_proposer(EngineConfig(speculative="a folder"), model, 10, None)


def test_make_proposer_makes_what_the_settings_name(model):
    assert make_proposer(EngineConfig(), model, 10, None) is None
    assert isinstance(make_proposer(EngineConfig(speculative="ngram"), model, 10, None), NgramProposer)
    config = EngineConfig(speculative="a folder", max_num_seqs=3, block_size=4)
    proposer = make_proposer(config, model, 10, model)
    assert isinstance(proposer, DraftModelProposer)
    assert proposer.num_free_blocks == 3 * 3, "as many as the largest batch can use"


def test_llm_with_a_draft_model_gives_the_tokens_that_it_gives_without(draft_folder):
    """Also where the draft model is the model itself, whose guesses all stay."""
    folder = draft_folder(seed=0, num_layers=2)
    params = [SamplingParams(max_tokens=9, ignore_eos=True), SamplingParams(max_tokens=9, temperature=1.0, seed=3)]
    prompts = [[5, 6, 7], [8, 9]]
    expected = [output.outputs for output in LLM(folder, dtype="float64").generate(prompts, params)]
    for speculative in (folder, draft_folder()):
        llm = LLM(folder, dtype="float64", speculative=speculative, num_speculative_tokens=3)
        assert [output.outputs for output in llm.generate(prompts, params)] == expected
        stats = llm.engine.stats()
        assert stats.num_proposed_tokens > 0
        assert (stats.num_accepted_tokens == stats.num_proposed_tokens) is (speculative == folder)
