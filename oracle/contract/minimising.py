"""Makes a failing run of an engine small: takes away one deviation from the simplest run after the other."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from oracle.contract.constructions import is_excluded
from oracle.contract.drawing import FOR_DRAWS, is_legal
from oracle.contract.scenario import EngineScenario
from oracle.engines.declaration import EngineDeclaration
from oracle.engines.messages import EngineRequest
from oracle.families import FamilySpec
from oracle.family_shapes import family_of

Fails = Callable[[EngineScenario], bool]
"""Tells whether a scenario fails in the same way."""


def minimise(
    scenario: EngineScenario, fails: Fails, declaration: EngineDeclaration, *, deadline: float
) -> EngineScenario:
    """Gives the smallest scenario found that still fails.

    Args:
        scenario: One that fails.
        fails: Tells whether one fails.
        declaration: Says what is the simplest value of a knob, and how short a prompt may be.
        deadline: When the search ends, on the monotonic clock.
    """
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for smaller in _simpler(scenario, declaration):
            if time.monotonic() > deadline:
                return scenario
            # One that the engine does not take to begin with has nothing to lose.
            may_run = _is_legal(smaller, declaration) or not _is_legal(scenario, declaration)
            if smaller != scenario and may_run and fails(smaller):
                scenario, is_smaller = smaller, True
                break
    return scenario


def _is_legal(scenario: EngineScenario, declaration: EngineDeclaration) -> bool:
    """Tells whether an engine declares that it takes settings, family and parameters of a scenario."""
    family = {} if scenario.family is None else {"family": scenario.family.family}
    return not is_excluded(declaration, {**scenario.knobs, **family}) and all(
        is_legal(declaration.opened_with(scenario.knobs), request.parameters) for request in scenario.requests
    )


def _simpler(scenario: EngineScenario, declaration: EngineDeclaration) -> Iterator[EngineScenario]:
    """Gives scenarios with one deviation less, the boldest first; those that need the engine opened anew come last."""
    yield from (replace(scenario, before=kept) for kept in _without_some(scenario.before))
    requests = scenario.requests
    yield from (replace(scenario, requests=kept) for kept in _without_some(requests) if kept)
    for place, request in enumerate(requests):
        for simpler in _simpler_requests(request, declaration):
            changed = (*requests[:place], simpler, *requests[place + 1 :])
            if declaration.shares_parameters:
                shared: dict[str, Any] = {"parameters": simpler.parameters, "max_tokens": simpler.max_tokens}
                changed = tuple(replace(each, **shared) for each in changed)
            yield replace(scenario, requests=changed)
    for name, value in scenario.knobs.items():
        simplest = declaration.knobs.get(name, [value])[0]
        if value != simplest:
            yield replace(scenario, knobs={**scenario.knobs, name: simplest})
    family = scenario.family
    if family is not None:
        yield from (replace(scenario, family=simpler) for simpler in _simpler_families(family, declaration))


def _simpler_families(family: FamilySpec, declaration: EngineDeclaration) -> Iterator[FamilySpec]:
    for name in dict.fromkeys((declaration.families[0], family_of(family.family))):
        if name != family.family:
            yield FamilySpec.for_engine(name, declaration.head_dims)


def _simpler_requests(request: EngineRequest, declaration: EngineDeclaration) -> Iterator[EngineRequest]:
    for name in request.parameters:
        kept = {key: value for key, value in request.parameters.items() if key != name}
        if not (name == "temperature" and set(kept) & set(FOR_DRAWS)):
            yield replace(request, parameters=kept)
    if request.abort_after is not None:
        yield replace(request, abort_after=None)
    if request.arrival:
        yield from (replace(request, arrival=arrival) for arrival in (0, request.arrival - 1))
    shortest = max(1, int(request.parameters.get("min_tokens", 0)))
    for number in (1, request.max_tokens // 2, request.max_tokens - 1):
        if shortest <= number < request.max_tokens:
            yield replace(request, max_tokens=number)
    yield from _simpler_prompts(request, declaration.min_prompt_tokens)
    yield from _shorter_lists(request)


def _simpler_prompts(request: EngineRequest, shortest: int) -> Iterator[EngineRequest]:
    prompt = request.prompt_token_ids
    for shorter in _without_some(prompt):
        if len(shorter) >= max(1, shortest):
            yield replace(request, prompt_token_ids=shorter)
    for place, token_id in enumerate(prompt):
        if token_id:
            yield replace(request, prompt_token_ids=(*prompt[:place], 0, *prompt[place + 1 :]))


def _shorter_lists(request: EngineRequest) -> Iterator[EngineRequest]:
    """Gives a request with a shorter list of ids, biases or sequences, but never an empty one."""
    for name, value in request.parameters.items():
        if isinstance(value, list | tuple):
            for kept in filter(None, _without_some(tuple(value))):
                yield replace(request, parameters={**request.parameters, name: list(kept)})


def _without_some(values: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """Gives the values without all, without either half, and without each one."""
    if not values:
        return
    half = len(values) // 2
    yield ()
    if half:
        yield values[half:]
        yield values[:half]
    if len(values) > 2:  # noqa: PLR2004 - for two, the halves are the same
        yield from (values[:place] + values[place + 1 :] for place in range(len(values)))
