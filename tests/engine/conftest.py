"""Small models that are sensitive to order, position and context, with and without a tokenizer."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from oracle.checkpoints import CheckpointSpec, cached_checkpoint
from refinfer import LLM, EngineConfig, SamplingParams, load_model
from refinfer.config.engine_config import CACHES
from refinfer.engine.assembly import make_core
from refinfer.engine.engine import make_states
from refinfer.engine.loading import LoadedModel
from refinfer.scheduler import Request


@pytest.fixture(params=CACHES)
def cache(request):
    """Each way of keeping keys and values."""
    return request.param


@pytest.fixture(scope="session")
def model():
    """In float64, where rows alone and rows in a batch never part over rounding."""
    spec = CheckpointSpec(hidden_size=16, intermediate_size=24, head_dim=8, vocab_size=29, num_tied_rows=2)
    return load_model(cached_checkpoint(spec), dtype="float64")


@pytest.fixture(scope="session")
def text_folder():
    """A checkpoint with a tokenizer, whose longest request is short."""
    spec = CheckpointSpec(
        hidden_size=16,
        intermediate_size=24,
        head_dim=8,
        vocab_size=320,
        max_position_embeddings=64,
        eos_token_ids=(1, 6),
        with_tokenizer=True,
    )
    return cached_checkpoint(spec)


@pytest.fixture(scope="session")
def make_llm(text_folder):
    """Builds an `LLM` once for each choice of options."""
    llm_by_options = {}

    def make(**options):
        key = tuple(sorted(options.items()))
        if key not in llm_by_options:
            llm_by_options[key] = LLM(text_folder, dtype="float64", **options)
        return llm_by_options[key]

    return make


@pytest.fixture(scope="session")
def failing():
    """Makes the n-th pass of a model fail in the middle, as long as the block runs."""

    @contextmanager
    def fail_at(model, pass_number) -> Iterator[list[int]]:
        passes = [0]

        def count(*_):
            passes[0] += 1
            if passes[0] == pass_number:
                message = "planted"
                raise RuntimeError(message)

        handle = model.get_submodule("model.layers.1").register_forward_hook(count)
        try:
            yield passes
        finally:
            handle.remove()

    return fail_at


@pytest.fixture(scope="session")
def new_core(model):
    """Builds the core of an engine with small caches, over one loaded model."""

    def make(cache, *, eos_token_ids=frozenset(), max_model_len=32, **options):
        if cache == "paged":
            options = {"block_size": 4, "num_blocks": 20} | options
        config = replace(EngineConfig(cache=cache), **options)
        return make_core(LoadedModel("", model, None, tuple(eos_token_ids)), config, max_model_len)

    return make


@pytest.fixture(scope="session")
def states_of():
    """Makes the samples of one request."""

    def make(prompt, params=None, name="a", seed=0):
        return make_states(Request(name, None, tuple(prompt), params or SamplingParams(), seed))

    return make
