"""Requests to be guessed for, and small models that guess."""

from dataclasses import replace

import pytest

from oracle.checkpoints import CheckpointSpec, cached_checkpoint
from refinfer import SamplingParams, load_model
from refinfer.sampling import SampleContext
from refinfer.speculative import DraftRequest

SPEC = CheckpointSpec(hidden_size=16, intermediate_size=24, head_dim=8, vocab_size=29, max_position_embeddings=24)


@pytest.fixture(scope="session")
def model():
    """In float64, where a pass of one token and a pass of many never part over rounding."""
    return load_model(cached_checkpoint(SPEC), dtype="float64")


@pytest.fixture(scope="session")
def narrow_model():
    return load_model(cached_checkpoint(SPEC), dtype="bfloat16")


@pytest.fixture(scope="session")
def scaled_model():
    """Its 24 positions are stretched by 2."""
    return load_model(cached_checkpoint(replace(SPEC, rope_type="linear", rope_factor=2.0)), dtype="float64")


@pytest.fixture(scope="session")
def request_of():
    """Makes a sample that is to be guessed for; the first tokens are its prompt, one unless it is said."""

    def make(token_ids, num_tokens=4, *, key="a", params=None, seed=0, num_prompt_tokens=1):
        prompt, output = tuple(token_ids[:num_prompt_tokens]), list(token_ids[num_prompt_tokens:])
        context = SampleContext(params or SamplingParams(), seed, 0, prompt, output, frozenset())
        return DraftRequest(key, list(token_ids), num_tokens, context)

    return make
