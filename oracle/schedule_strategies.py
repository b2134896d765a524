"""What is tried of schedules: deviations from one request in one chunk with ample room, simplest first."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from oracle.checkpoints import CheckpointSpec
from oracle.choosers import Chooser, HypothesisChooser
from oracle.engine_spec import EngineSpec, StepScript
from oracle.sampling_spec import SamplingSpec
from oracle.scenario import RequestSpec, Scenario
from oracle.schedule_company import bend
from refinfer.config.engine_config import PREEMPTIONS

Draw = Callable[..., Any]
"""Gives a value of a strategy; Hypothesis's own type for it is one that the shape checks cannot read."""

# Each tuple has the simplest value first, since a shrinking search moves there; repeats make a value likelier.
_BLOCK_SIZES = (16, 8, 4, 4, 2, 2, 1, 3, 5, 32, 64)
_BUDGETS = (256, 256, 256, 32, 16, 16, 8, 8, 5, 3, 1)
_SPARE_BLOCKS = (None, None, 0, 1, 2, 4, 8)
_SWAP_BLOCKS = (None, None, 0, 1, 3)
_PLACEMENT_SEEDS = (None, 0, 1)
_MAX_NUM_SEQS = (16, 16, 16, 1, 2, 3, 4)
_ARRIVALS = (0, 0, 0, 0, 1, 2, 3, 6)
_ABORTS = (None,) * 17 + (0, 2, 4)
_SALTS = (None,) * 8 + ("", "salt")
_NUM_SHARED_TOKENS = (0, 0, 4, 8, 3, 16)
_PREEMPTED = ((),) * 6 + ((0,), (1,), (0, 1))
_CAPS = ((), (), (1,), (0,), (2, 1), (0, 1), (1, 0, 3), (3, 2, 1))
_ADMITTED = (None, None, None, 0, 1, 2)
_ROTATIONS = (0, 0, 1, 2)
_SCHEDULINGS = ("running_first", "running_first", "prefill_first")
_SPECULATIVES = (None, None, None, "ngram", "scripted", "scripted", "self", "draft")
_CHEAP_SPECULATIVES = (None, None, None, None, None, "ngram", "scripted", "self")
"""Where each case has a checkpoint of its own, another draft model would have to be made for each as well."""

_NUMS_SPECULATIVE = (4, 1, 2, 8)
_GUESSES = ("right", "right", "right", "right", "wrong", "end", "nothing")
_MAX_GUESSES = 6
_IS_CACHING = (False, True, True)
_FLAGS = (False, True)

_SETTINGS: tuple[dict[str, Any], ...] = (
    {"temperature": 1.0, "seed": 0},
    {"temperature": 0.7, "seed": 2**64 - 1},
    {"temperature": 1.5},
    {"temperature": 1.0, "seed": 1, "top_k": 3},
    {"temperature": 1.5, "seed": 2, "top_p": 0.7},
    {"temperature": 2.0, "seed": 3, "min_p": 0.1},
    {"n": 2},
    {"n": 3, "temperature": 1.0, "seed": 4},
    {"n": 2, "temperature": 1.0},
    {"logprobs": 0},
    {"logprobs": 3},
    {"prompt_logprobs": 0},
    {"prompt_logprobs": 2, "logprobs": 1},
    {"repetition_penalty": 1.5},
    {"repetition_penalty": 0.6},
    {"presence_penalty": 1.5},
    {"frequency_penalty": 1.5},
    {"frequency_penalty": -1.0},
    {"logit_bias": ((3, 4.0), (1, -100.0))},
    {"min_tokens": 2},
    {"min_tokens": 4},
    {"stop_token_ids": (3, 8)},
)
"""Parameters that a request may have, some of which show an effect only together."""

_TEXT_SETTINGS: tuple[dict[str, Any], ...] = ({"stop": ("e",)}, {"stop": ("a", "bc", " d")}, {"stop": ("é", "ab")})
"""Those that need a tokenizer."""

MAX_SETTINGS = 2
MAX_STEPS = 7
MAX_REQUESTS = 6
MAX_OWN_TOKENS = 16
SYMBOLIC_ALPHABET = 4
"""Prompts are made of so many token ids, so that equal blocks at other places come up."""

MAX_MODEL_REQUESTS = 4
_MODEL_MAX_TOKENS = (1, 2, 3, 5, 1, 2, 3, 5, 8, 40)
"""The last goes past the 32 positions of the smallest original length of a llama3 checkpoint."""

_MAX_TOKENS = (1, 1, 2, 2, 3, 4, 5, 9)

_ALL_SETTINGS = _SETTINGS + _TEXT_SETTINGS
_GREEDY = SamplingSpec()


def choose_sampling(choose: Chooser, max_tokens: int, *, has_text: bool) -> SamplingSpec:
    """Chooses the parameters of one request; the simplest is greedy choice.

    Args:
        choose: Makes the choices.
        max_tokens: Most output tokens of the request, which bounds `min_tokens`.
        has_text: Whether stop strings can be looked for.
    """
    settings = _ALL_SETTINGS if has_text else _SETTINGS
    values: dict[str, Any] = {}
    for _ in choose.items(MAX_SETTINGS):
        values |= choose.one_of(settings)
    if "min_tokens" in values:
        values["min_tokens"] = min(values["min_tokens"], max_tokens)
    return SamplingSpec(**values) if values else _GREEDY


def choose_scheduled(
    choose: Chooser, request: RequestSpec, earlier: Sequence[RequestSpec], *, has_text: bool
) -> RequestSpec:
    """Chooses what a schedule adds to a request: parameters, a shared beginning, an abort, a salt.

    Args:
        choose: Makes the choices.
        request: The request.
        earlier: Requests before it, with whose first tokens it may begin.
        has_text: Whether stop strings can be looked for.
    """
    shared: tuple[int, ...] = ()
    num_shared = choose.one_of(_NUM_SHARED_TOKENS) if earlier else 0
    if num_shared:
        shared = choose.one_of(tuple(earlier)).prompt_token_ids[:num_shared]
    sampling = choose_sampling(choose, request.max_tokens, has_text=has_text)
    abort_step, salt = choose.one_of(_ABORTS), choose.one_of(_SALTS)
    if not (shared or sampling != _GREEDY or abort_step is not None or salt is not None):
        return request
    return replace(
        request,
        prompt_token_ids=shared + request.prompt_token_ids,
        sampling=sampling,
        abort_step=abort_step,
        cache_salt=salt,
    )


def choose_engine(
    choose: Chooser, *, is_speculative: bool | None = None, speculatives: Sequence[str | None] = _SPECULATIVES
) -> EngineSpec:
    """Chooses settings of an engine; the simplest has blocks of 16, ample room, and neither shares nor guesses.

    Whether tokens are guessed is chosen too, unless `is_speculative` says so.
    """
    choices = tuple(speculatives) if is_speculative is None else tuple(filter(None, speculatives))
    speculative = None if is_speculative is False else choose.one_of(choices)
    return EngineSpec(
        max_num_batched_tokens=choose.one_of(_BUDGETS),
        scheduling=choose.one_of(_SCHEDULINGS),
        block_size=choose.one_of(_BLOCK_SIZES),
        num_spare_blocks=choose.one_of(_SPARE_BLOCKS),
        enable_prefix_caching=choose.one_of(_IS_CACHING),
        preemption=choose.one_of(PREEMPTIONS),
        num_swap_blocks=choose.one_of(_SWAP_BLOCKS),
        placement_seed=choose.one_of(_PLACEMENT_SEEDS),
        speculative=speculative,
        num_speculative_tokens=choose.one_of(_NUMS_SPECULATIVE) if speculative is not None else 4,
        guesses=_choose_guesses(choose) if speculative == "scripted" else ("right",),
    )


def _choose_guesses(choose: Chooser) -> tuple[str, ...]:
    """Chooses what a script guesses; the simplest is always right."""
    return tuple(choose.one_of(_GUESSES) for _ in choose.items(_MAX_GUESSES, least=1))


def choose_script(choose: Chooser) -> tuple[StepScript, ...]:
    """Chooses a script for the scheduler; the simplest leaves all to the policy."""
    return tuple(
        StepScript(
            recompute=choose.one_of(_PREEMPTED),
            swap=choose.one_of(_PREEMPTED),
            caps=choose.one_of(_CAPS),
            admit=choose.one_of(_ADMITTED),
            rotation=choose.one_of(_ROTATIONS),
        )
        for _ in choose.items(MAX_STEPS)
    )


def choose_symbolic_schedule(choose: Chooser, *, is_speculative: bool | None = None) -> Scenario:
    """Chooses a schedule for the symbolic model; the simplest is one request of one token, in one chunk, alone."""
    scenario = Scenario(
        requests=_choose_requests(choose, MAX_REQUESTS, _MAX_TOKENS, has_text=True),
        max_num_seqs=choose.one_of(_MAX_NUM_SEQS),
        checkpoint=None,
        engine=choose_engine(choose, is_speculative=is_speculative),
        script=choose_script(choose),
        is_symbolic=True,
    )
    return bend(choose.aside(), scenario, has_text=True)


def choose_model_schedule(
    choose: Chooser,
    checkpoints: Sequence[CheckpointSpec],
    *,
    batch_invariant: bool,
    is_speculative: bool | None = None,
) -> Scenario:
    """Chooses a schedule for one of some tiny models, some of its outputs long enough to leave a RoPE band."""
    spec = choose.one_of(checkpoints)
    scenario = Scenario(
        requests=_choose_requests(choose, MAX_MODEL_REQUESTS, _MODEL_MAX_TOKENS, has_text=spec.with_tokenizer),
        max_num_seqs=choose.one_of(_MAX_NUM_SEQS),
        batch_invariant=batch_invariant,
        checkpoint=spec,
        engine=choose_engine(choose, is_speculative=is_speculative),
        script=choose_script(choose),
    )
    return bend(choose.aside(), scenario, has_text=spec.with_tokenizer)


def _choose_requests(
    choose: Chooser, most: int, nums_of_tokens: Sequence[int], *, has_text: bool
) -> tuple[RequestSpec, ...]:
    """Chooses the requests of a schedule, at least one and at most so many, and how many tokens each may emit."""
    requests: list[RequestSpec] = []
    for _ in choose.items(most, least=1):
        request = RequestSpec(
            choose.token_ids(SYMBOLIC_ALPHABET, MAX_OWN_TOKENS),
            choose.one_of(nums_of_tokens),
            choose.one_of(_FLAGS),
            arrival=choose.one_of(_ARRIVALS),
        )
        requests.append(choose_scheduled(choose, request, requests, has_text=has_text))
    return tuple(requests)


@st.composite
def symbolic_schedules(draw: Draw) -> Scenario:
    """Draws a schedule for the symbolic model."""
    return choose_symbolic_schedule(HypothesisChooser(draw))


@st.composite
def with_schedule(draw: Draw, scenarios: st.SearchStrategy[Scenario]) -> Scenario:
    """Draws a schedule for requests that were drawn before; the empty draw leaves them as they are."""
    choose = HypothesisChooser(draw)
    scenario: Scenario = draw(scenarios)
    has_text = scenario.checkpoint is not None and scenario.checkpoint.with_tokenizer
    requests: list[RequestSpec] = []
    for request in scenario.requests:
        requests.append(choose_scheduled(choose, request, requests, has_text=has_text))
    engine = choose_engine(choose, speculatives=_CHEAP_SPECULATIVES)
    return replace(scenario, requests=tuple(requests), engine=engine, script=choose_script(choose))
