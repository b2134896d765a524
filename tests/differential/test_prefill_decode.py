"""`prefill` and `decode` over caches of one's own, without an engine, against the reference."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from oracle.case import Case
from oracle.compare import as_rows, compare_logits
from oracle.metamorphic_properties import check_chunked_prefill
from oracle.scenario import RequestSpec, Scenario
from oracle.strategies import scenarios
from refinfer import load_model
from refinfer.cache import ContinuousCache

pytestmark = pytest.mark.without_shape_checks

FEW = settings(max_examples=max(5, settings().max_examples // 4))
"""`python -m oracle check` draws hundreds; here the shape checks run as well, and each case costs more."""

EXACT_DTYPES = ("float32", "float64")


def caches_for(model, scenario):
    """An empty cache for each request."""
    return [ContinuousCache(model.config, model.dtype) for _ in scenario.requests]


def hold_to_referee(case, token_ids, row, what):
    """Holds the logits after the last of some tokens to the referee."""
    compare_logits(as_rows(row[None]), case.referee_logits(token_ids)[-1:], case.bound(token_ids), what)


@FEW
@given(scenario=scenarios(dtypes=EXACT_DTYPES))
def test_prefill_matches_reference_logits(scenario):
    """Prompts of several lengths in one pass."""
    case = Case(scenario)
    model = load_model(case.folder, dtype=scenario.dtype)
    prompts = [request.prompt_token_ids for request in scenario.requests]
    logits = model.prefill(prompts, caches_for(model, scenario))
    for index, (prompt, row) in enumerate(zip(prompts, logits, strict=True)):
        hold_to_referee(case, prompt, row, f"request {index}")


@FEW
@given(scenario=scenarios(dtypes=EXACT_DTYPES))
def test_chunked_prefill_matches_reference_logits(scenario):
    check_chunked_prefill(Case(scenario), "continuous")


@FEW
@given(scenario=scenarios(dtypes=EXACT_DTYPES), data=st.data())
def test_decode_matches_reference_logits(scenario, data):
    """The tokens are drawn, not the model's own choice, and the requests stand in another order at each step."""
    case = Case(scenario)
    model = load_model(case.folder, dtype=scenario.dtype)
    token_id_lists = [list(request.prompt_token_ids) for request in scenario.requests]
    caches = caches_for(model, scenario)
    model.prefill(token_id_lists, caches)
    for step in range(data.draw(st.integers(1, 3), label="steps")):
        order = data.draw(st.permutations(range(len(caches))), label="order")
        newest = [data.draw(st.integers(0, model.config.vocab_size - 1), label="token id") for _ in order]
        logits = model.decode(newest, [caches[index] for index in order])
        for index, token_id, row in zip(order, newest, logits, strict=True):
            token_id_lists[index].append(token_id)
            hold_to_referee(case, tuple(token_id_lists[index]), row, f"request {index}, step {step}")


@FEW
@given(scenario=scenarios(dtypes=EXACT_DTYPES))
def test_decode_after_chunks_matches_reference_logits(scenario):
    """What the chunks left in the cache is read, not only what they gave."""
    case = Case(scenario)
    model = load_model(case.folder, dtype=scenario.dtype)
    for index, (request, cache) in enumerate(zip(scenario.requests, caches_for(model, scenario), strict=True)):
        bounds = (0, *request.cuts, len(request.prompt_token_ids))
        for start, end in pairwise(bounds):
            model.prefill([request.prompt_token_ids[start:end]], [cache])
        newest = request.prompt_token_ids[0]
        row = model.decode([newest], [cache])[0]
        hold_to_referee(case, (*request.prompt_token_ids, newest), row, f"request {index}")


@pytest.mark.parametrize("num_tokens", [15, 16, 17, 31, 32, 33, 64])
def test_decode_matches_witness_logits_where_the_cache_grows(num_tokens):
    """One token at a time across each length at which storage is copied to a larger place."""
    prompt = tuple(token_id % 97 for token_id in range(3, 3 + num_tokens))
    case = Case(Scenario((RequestSpec(prompt),), dtype="float64"))
    model = load_model(case.folder, dtype="float64")
    cache = ContinuousCache(model.config, model.dtype)
    rows = [model.prefill([prompt[:1]], [cache]), *(model.decode([token_id], [cache]) for token_id in prompt[1:])]
    compare_logits(as_rows(torch.cat(rows)), case.witness_logits(prompt), case.bound(prompt), "token by token")
