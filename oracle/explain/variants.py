"""Which schedules show what a property saw? Properties without a schedule run their requests in ways of their own."""

from collections.abc import Iterator
from dataclasses import replace

from oracle.engine_spec import EngineSpec, StepScript
from oracle.sampling_spec import SamplingSpec
from oracle.scenario import RequestSpec, Scenario

_SCHEDULED = ("schedules", "effects", "symbolic schedules")
_MOST_CHUNK = 3


def schedules_for(scenario: Scenario, check: str) -> Iterator[Scenario]:
    """Gives schedules in which to look for what a check saw, the likeliest first.

    Args:
        scenario: The case.
        check: The check that failed.
    """
    if check in _SCHEDULED:
        yield scenario
        return
    if check == "state":
        yield replace(scenario, script=(), is_symbolic=True, checkpoint=None)
        return
    plain = replace(scenario, requests=tuple(map(_greedy, scenario.requests)), engine=EngineSpec(), script=())
    yield plain
    if len(plain.requests) > 1:
        yield plain.reordered(tuple(reversed(range(len(plain.requests)))))
    yield _chunked(plain)
    for number in range(1, _MOST_CHUNK + 1):
        caps = (number,) * len(plain.requests)
        num_steps = max(len(request.prompt_token_ids) for request in plain.requests) // number + 1
        yield replace(plain, script=(StepScript(caps=caps),) * num_steps)


def _greedy(request: RequestSpec) -> RequestSpec:
    return replace(request, sampling=SamplingSpec(), arrival=0, abort_step=None, cache_salt=None)


def _chunked(scenario: Scenario) -> Scenario:
    """Cuts prompts as the scenario says; all requests go on until the last chunk has run."""
    bounds = [(0, *request.cuts, len(request.prompt_token_ids)) for request in scenario.requests]
    num_steps = max(map(len, bounds)) - 1
    script = tuple(
        StepScript(caps=tuple(own[step + 1] - own[step] if step + 1 < len(own) else 1 for own in bounds))
        for step in range(num_steps)
    )
    requests = tuple(
        replace(request, max_tokens=max(request.max_tokens, num_steps + 1), ignore_eos=True)
        for request in scenario.requests
    )
    return replace(scenario, requests=requests, script=script, max_num_seqs=max(16, len(requests)))
