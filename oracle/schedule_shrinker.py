"""Makes a failing schedule small: takes away one deviation from the simplest run after the other, while it still fails.

A schedule is plain data whose defaults are the simplest run, so that it can be shrunk without the choices that made it,
and a saved one as well.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from itertools import chain
from math import ceil
from typing import Any

from oracle.errors import ScenarioError
from oracle.scenario import RequestSpec, Scenario

_FEW_TOKENS = 8
"""So few can be read in any blocks and chunks."""

_LIMITS = {"block_size": (1, 2, 4, 8), "max_num_batched_tokens": (1, 2, 4, 8, 16)}
"""Settings that decide how many tokens it takes until something happens, with values to try instead."""


def shrink(scenario: Scenario, fails: Callable[[Scenario], bool], *, deadline: float) -> Scenario:
    """Gives the smallest schedule found that still fails.

    What takes many tokens in large blocks or chunks is tried with smaller ones as well, which are kept where fewer
    tokens are then enough.

    Args:
        scenario: One that fails.
        fails: Tells whether a schedule fails.
        deadline: When the search ends, on the monotonic clock.
    """
    smallest = _shrunk(scenario, fails, _simpler, deadline)
    is_smaller = True
    while is_smaller and smallest.num_tokens > _FEW_TOKENS:
        is_smaller = False
        for tighter in _tighter(smallest):
            if time.monotonic() > deadline:
                return smallest
            if not fails(tighter):
                continue
            own = _shrunk(tighter, fails, _with_less_asked, deadline)
            if own.num_tokens < smallest.num_tokens:
                smallest, is_smaller = _shrunk(own, fails, _simpler, deadline), True
                break
    return smallest


def _shrunk(
    scenario: Scenario,
    fails: Callable[[Scenario], bool],
    simpler: Callable[[Scenario], Iterator[Scenario]],
    deadline: float,
) -> Scenario:
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for smaller in simpler(scenario):
            if time.monotonic() > deadline:
                return scenario
            if smaller != scenario and fails(smaller):
                scenario, is_smaller = smaller, True
                break
    return scenario


def _tighter(scenario: Scenario) -> Iterator[Scenario]:
    """Gives the schedule with smaller blocks, or smaller chunks, with all of its tokens and then with so much fewer."""
    for name, values in _LIMITS.items():
        for value in values:
            if value < getattr(scenario.engine, name):
                changes: dict[str, Any] = {name: value}
                tighter = replace(scenario, engine=replace(scenario.engine, **changes))
                yield tighter
                yield _scaled(tighter, value / getattr(scenario.engine, name))


def _simpler(scenario: Scenario) -> Iterator[Scenario]:
    """Gives schedules with one deviation less, the boldest first; those that are not legal are left out."""
    script = scenario.script
    yield from _without_a_request(scenario)
    for kept in ((), script[: len(script) // 2], script[:-1], *_without_one(script)):
        yield replace(scenario, script=kept)
    for place, step in enumerate(script):
        for simpler in _at_defaults(step):
            yield replace(scenario, script=(*script[:place], simpler, *script[place + 1 :]))
    for engine in _at_defaults(scenario.engine):
        yield replace(scenario, engine=engine)
    yield replace(scenario, max_num_seqs=16)
    yield from _with_simpler_requests(scenario)


def _scaled(scenario: Scenario, share: float) -> Scenario:
    """Gives the schedule with a share of all tokens, rounded up."""

    def scaled(request: RequestSpec) -> RequestSpec:
        prompt = request.prompt_token_ids[: ceil(share * len(request.prompt_token_ids))]
        most = ceil(share * request.max_tokens)
        sampling = replace(request.sampling, min_tokens=min(most, request.sampling.min_tokens))
        return replace(request, prompt_token_ids=prompt, cuts=(), max_tokens=most, sampling=sampling)

    return replace(scenario, requests=tuple(map(scaled, scenario.requests)))


def _with_less_asked(scenario: Scenario) -> Iterator[Scenario]:
    """Gives schedules in the same engine, under the same script, of which less is asked."""
    yield from _without_a_request(scenario)
    for place, request in enumerate(scenario.requests):
        for length in range(1, len(request.prompt_token_ids)):
            shorter = replace(request, prompt_token_ids=request.prompt_token_ids[:length], cuts=())
            yield replace(scenario, requests=(*scenario.requests[:place], shorter, *scenario.requests[place + 1 :]))
    yield from _with_simpler_requests(scenario)


def _without_a_request(scenario: Scenario) -> Iterator[Scenario]:
    if len(scenario.requests) > 1:
        yield from (replace(scenario, requests=kept) for kept in _without_one(scenario.requests))


def _with_simpler_requests(scenario: Scenario) -> Iterator[Scenario]:
    requests = scenario.requests
    if len(requests) > 1:  # the longest decides how large the pool is, so that others have to shrink with it
        yield from (_scaled(scenario, share) for share in (1 / 2, 3 / 4))
    for place, request in enumerate(requests):
        for simpler in _simpler_requests(request):
            yield replace(scenario, requests=(*requests[:place], simpler, *requests[place + 1 :]))


def _simpler_requests(request: RequestSpec) -> Iterator[RequestSpec]:
    prompt = request.prompt_token_ids
    half, quarter = len(prompt) // 2, len(prompt) // 4
    halves = (prompt[:half], prompt[half:], prompt[quarter:], prompt[: len(prompt) - quarter])
    prompts = chain(halves, (prompt[2:], prompt[:-2]), _without_one(prompt), _with_zeros(prompt))
    changes: list[dict[str, Any]] = [{"max_tokens": number} for number in (1, request.max_tokens // 2)]
    changes += [{"max_tokens": request.max_tokens - 1}, {"arrival": 0}, {"arrival": request.arrival - 1}]
    changes += [{"abort_step": None}, {"cache_salt": None}, {"ignore_eos": False}]
    changes += [{"sampling": sampling} for sampling in _at_defaults(request.sampling)]
    changes += [{"prompt_token_ids": shorter, "cuts": ()} for shorter in prompts]
    for change in changes:
        try:
            smaller = replace(request, **change)
        except ScenarioError:
            continue
        yield smaller


def _at_defaults(spec: Any) -> Iterator[Any]:
    """Gives a spec with one of its fields at its default, then one of its tuples shorter."""
    for field in fields(spec):
        value = getattr(spec, field.name)
        if value != field.default:
            yield replace(spec, **{field.name: field.default})
            if isinstance(value, tuple) and isinstance(field.default, tuple) and len(value) > len(field.default):
                yield from (replace(spec, **{field.name: kept}) for kept in _without_one(value))


def _without_one(values: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    return (values[:place] + values[place + 1 :] for place in range(len(values)))


def _with_zeros(prompt: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    for place, token_id in enumerate(prompt):
        if token_id:
            yield (*prompt[:place], 0, *prompt[place + 1 :])
