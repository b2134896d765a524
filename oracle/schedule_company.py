"""What shows only together, and comes up together too rarely by itself: a schedule is bent until it does."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from oracle.choosers import Chooser
from oracle.engine_spec import EngineSpec
from oracle.sampling_spec import SamplingSpec
from oracle.scenario import RequestSpec, Scenario
from refinfer.config.engine_config import SCHEDULINGS

Bend = Callable[[Chooser, Scenario], Scenario]

# Each tuple has the simplest value first, since a shrinking search moves there; repeats make a value likelier.
_FEW_SPARE_BLOCKS = (2, 0, 1, 3, 5)
_SMALL_BLOCKS = (4, 1, 2, 3)
_WIDE_BUDGETS = (256, 16, 8)
_CROWD_ARRIVALS = (0, 1, 2, 3, 5, 8, 13)
_PROMPT_LENGTHS = (4, 2, 1, 6, 12, 32)
_LONG_OUTPUTS = (9, 4, 6, 12)
_LEAST_OF_A_CROWD = 6
_SHORT_OUTPUTS = (1, 2, 3, 5)
_FEW_SEQS = (1, 2)
_NUM_VISITS = 10
_MOST_HOSTS = 3
_IS_CACHING = (False, True, True, True)
_CUTS = (1, 2, 3, 5, 8)
_ABORTS = (1, 2, 3, 4, 6)

_CHARACTERS = "abcdefghi é"
_NEVER_WRITTEN = "\x00"
_HOLDING = tuple(character + _NEVER_WRITTEN for character in _CHARACTERS)
"""Stop strings of which nearly every text may be the beginning, and which never come: text is held back all along."""

_ACROSS_TOKENS = tuple(first + second for first in "abe" for second in _CHARACTERS)
"""Stop strings that begin with one token and end with another, mostly, and may not come after all."""

_PAIRED_SETTINGS: tuple[dict[str, Any], ...] = (
    {"logit_bias": ((0, 2.0), (1, 1.0), (2, -1.0), (3, 2.0)), "repetition_penalty": 1.6},
    {"logit_bias": ((0, -1.0), (3, 3.0), (5, 2.0)), "repetition_penalty": 0.6, "frequency_penalty": 0.5},
    {"logit_bias": tuple((token_id, -8.0) for token_id in range(16)), "repetition_penalty": 1.3},
    {"repetition_penalty": 1.9, "presence_penalty": 1.5},
    {"presence_penalty": 2.0, "frequency_penalty": -0.5},
    {"min_tokens": 3, "stop_token_ids": tuple(range(0, 16, 2))},
    {"stop_token_ids": (0, 5)},
    {"temperature": 1.0, "top_k": 4, "top_p": 0.6, "seed": 5},
    {"temperature": 1.2, "min_p": 0.05, "top_p": 0.8, "presence_penalty": 0.5, "seed": 6},
)
"""Parameters of which the order, the sign or the border shows where both stand on one token. Where a bias makes all
logits negative, a penalty has to multiply them; id 0 is an id like any other."""

_PAIRED_TEXT_SETTINGS: tuple[dict[str, Any], ...] = (
    {"min_tokens": 3, "stop": ("a", "b", "c", "e", "g")},
    {"stop": _ACROSS_TOKENS},
    {"stop": _ACROSS_TOKENS, "logprobs": 1},
)
"""Those that need a tokenizer."""


def bend(choose: Chooser, scenario: Scenario, *, has_text: bool) -> Scenario:
    """Leaves a schedule as it is, mostly, or bends it towards one thing that shows together only.

    Args:
        choose: Makes the choices.
        scenario: The schedule.
        has_text: Whether stop strings can be looked for.
    """
    bends: tuple[Bend | None, ...] = (*(None,) * 5, *(_crowd,) * 2, _revisit, _cut_short, _cut_short)
    bends += (_pair_with_text, _hold) if has_text else (_pair,)
    chosen = choose.one_of(bends)
    return scenario if chosen is None else chosen(choose, scenario)


def _crowd(choose: Chooser, scenario: Scenario) -> Scenario:
    """Lets requests outgrow the pool together: their prompts fit, and their outputs take blocks from each other."""
    engine = replace(
        _in_small_pool(choose, scenario),
        scheduling=choose.one_of(SCHEDULINGS),
        enable_prefix_caching=choose.one_of(_IS_CACHING),
        max_num_batched_tokens=choose.one_of(_WIDE_BUDGETS),
    )
    requests = tuple(
        replace(_visit(choose, guest, _LONG_OUTPUTS), ignore_eos=True, arrival=choose.one_of(_CROWD_ARRIVALS))
        for guest in _at_least(_LEAST_OF_A_CROWD, scenario.requests)
    )
    return replace(scenario, requests=requests, engine=engine, max_num_seqs=16)


def _revisit(choose: Chooser, scenario: Scenario) -> Scenario:
    """Lets short requests come one after the other, so that the pool is full of what can be found, or given up."""
    engine = replace(_in_small_pool(choose, scenario), enable_prefix_caching=True)
    hosts = scenario.requests[:_MOST_HOSTS]
    guests = [_visit(choose, choose.one_of(hosts), _SHORT_OUTPUTS) for _ in range(_NUM_VISITS)]
    requests = tuple(replace(guest, abort_step=None, cache_salt=None) for guest in guests)
    return replace(scenario, requests=requests, engine=engine, max_num_seqs=choose.one_of(_FEW_SEQS))


def _in_small_pool(choose: Chooser, scenario: Scenario) -> EngineSpec:
    block_size, num_spare_blocks = choose.one_of(_SMALL_BLOCKS), choose.one_of(_FEW_SPARE_BLOCKS)
    return replace(scenario.engine, block_size=block_size, num_spare_blocks=num_spare_blocks)


def _at_least(number: int, requests: tuple[RequestSpec, ...]) -> tuple[RequestSpec, ...]:
    """Repeats requests until there are enough."""
    return (requests * number)[: max(number, len(requests))]


def _visit(choose: Chooser, request: RequestSpec, nums_of_tokens: Sequence[int]) -> RequestSpec:
    """Gives a request that begins like another, and is of another length."""
    prompt = request.prompt_token_ids[: choose.one_of(_PROMPT_LENGTHS)]
    max_tokens = choose.one_of(nums_of_tokens)
    sampling = replace(request.sampling, min_tokens=min(request.sampling.min_tokens, max_tokens))
    return replace(request, prompt_token_ids=prompt, max_tokens=max_tokens, sampling=sampling)


def _cut_short(choose: Chooser, scenario: Scenario) -> Scenario:
    """Ends the longest requests by `max_model_len`."""
    return replace(scenario, engine=replace(scenario.engine, max_model_len_cut=choose.one_of(_CUTS)))


def _pair(choose: Chooser, scenario: Scenario) -> Scenario:
    """Gives requests parameters that meet on one token."""
    return _with_settings(choose, scenario, _PAIRED_SETTINGS)


def _pair_with_text(choose: Chooser, scenario: Scenario) -> Scenario:
    """Gives requests parameters that meet on one token, or on the text of two."""
    return _with_settings(choose, scenario, _PAIRED_SETTINGS + _PAIRED_TEXT_SETTINGS)


def _with_settings(choose: Chooser, scenario: Scenario, settings: Sequence[dict[str, Any]]) -> Scenario:
    def changed(request: RequestSpec) -> RequestSpec:
        values, max_tokens = dict(choose.one_of(settings)), choose.one_of(_LONG_OUTPUTS)
        return replace(request, max_tokens=max_tokens, sampling=SamplingSpec(**values))

    return replace(scenario, requests=tuple(map(changed, scenario.requests)))


def _hold(choose: Chooser, scenario: Scenario) -> Scenario:
    """Aborts requests while their text is held back for a stop string."""

    def held(request: RequestSpec) -> RequestSpec:
        abort_step = request.arrival + choose.one_of(_ABORTS)
        return replace(request, ignore_eos=True, abort_step=abort_step, sampling=SamplingSpec(stop=_HOLDING))

    return replace(scenario, requests=tuple(map(held, scenario.requests)))
