"""What Hypothesis tries of schedules: deviations from one request in one chunk with ample room, simplest first."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from oracle.engine_spec import EngineSpec, StepScript
from oracle.sampling_spec import SamplingSpec
from oracle.scenario import RequestSpec, Scenario

Draw = Callable[..., Any]
"""Gives a value of a strategy; Hypothesis's own type for it is one that the shape checks cannot read."""

# Each tuple has the simplest value first, since a shrinking search moves there; repeats make a value likelier.
_BLOCK_SIZES = (16, 8, 4, 4, 2, 2, 1, 3, 5, 32, 64)
_BUDGETS = (256, 256, 16, 8, 5, 3, 2, 1)
_SPARE_BLOCKS = (None, None, 0, 1, 2, 4, 8)
_SWAP_BLOCKS = (None, None, 0, 1, 3)
_PLACEMENT_SEEDS = (None, 0, 1)
_MAX_NUM_SEQS = (16, 16, 1, 2, 3, 4)
_ARRIVALS = (0, 0, 0, 1, 2, 3, 5, 9)
_ABORTS = (None,) * 8 + (0, 2, 4)
_SALTS = (None,) * 8 + ("", "salt")
_NUM_SHARED_TOKENS = (0, 0, 4, 8, 3, 16, 40)
_PREEMPTED = ((),) * 6 + ((0,), (1,), (0, 1))
_CAPS = ((), (), (1,), (0,), (2, 1), (0, 1), (1, 0, 3), (3, 2, 1))
_ADMITTED = (None, None, None, 0, 1, 2)
_ROTATIONS = (0, 0, 1, 2)

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

MAX_SETTINGS = 3
MAX_STEPS = 8
MAX_REQUESTS = 6
MAX_OWN_TOKENS = 20
SYMBOLIC_ALPHABET = 4
"""Prompts are made of so many token ids, so that equal blocks at other places come up."""

_MAX_TOKENS = (1, 2, 3, 4, 6, 9, 14)


def sampling_specs(max_tokens: int, *, has_text: bool) -> st.SearchStrategy[SamplingSpec]:
    """Draws the parameters of one request; the empty draw is greedy choice.

    Args:
        max_tokens: Most output tokens of the request, which bounds `min_tokens`.
        has_text: Whether stop strings can be looked for.
    """
    settings = st.sampled_from(_SETTINGS + _TEXT_SETTINGS if has_text else _SETTINGS)

    def merged(chosen: Sequence[dict[str, Any]]) -> SamplingSpec:
        spec = SamplingSpec(**{name: value for own in chosen for name, value in own.items()})
        return replace(spec, min_tokens=min(spec.min_tokens, max_tokens)) if spec.min_tokens else spec

    return st.lists(settings, max_size=MAX_SETTINGS).map(merged)


@st.composite
def scheduled(draw: Draw, request: RequestSpec, earlier: Sequence[RequestSpec], *, has_text: bool) -> RequestSpec:
    """Draws what a schedule adds to a request: parameters, a shared beginning, an abort, a salt.

    Args:
        draw: Gives drawn values; Hypothesis passes it.
        request: The request.
        earlier: Requests before it, with whose first tokens it may begin.
        has_text: Whether stop strings can be looked for.
    """
    num_shared = draw(st.sampled_from(_NUM_SHARED_TOKENS), label="num_shared_tokens") if earlier else 0
    shared: tuple[int, ...] = ()
    if num_shared:
        shared = earlier[draw(st.integers(0, len(earlier) - 1), label="shared_with")].prompt_token_ids[:num_shared]
    sampling = draw(sampling_specs(request.max_tokens, has_text=has_text), label="sampling")
    abort_step = draw(st.sampled_from(_ABORTS), label="abort_step")
    salt = draw(st.sampled_from(_SALTS), label="cache_salt")
    if not (shared or sampling.named or abort_step is not None or salt is not None):
        return request
    return replace(
        request,
        prompt_token_ids=shared + request.prompt_token_ids,
        sampling=sampling,
        abort_step=abort_step,
        cache_salt=salt,
    )


def engine_specs() -> st.SearchStrategy[EngineSpec]:
    """Draws settings of an engine; the empty draw has blocks of 16, ample room, and shares nothing."""
    return st.builds(
        EngineSpec,
        max_num_batched_tokens=st.sampled_from(_BUDGETS),
        scheduling=st.sampled_from(("running_first", "running_first", "prefill_first")),
        block_size=st.sampled_from(_BLOCK_SIZES),
        num_spare_blocks=st.sampled_from(_SPARE_BLOCKS),
        enable_prefix_caching=st.sampled_from((False, True, True)),
        preemption=st.sampled_from(("recompute", "swap")),
        num_swap_blocks=st.sampled_from(_SWAP_BLOCKS),
        placement_seed=st.sampled_from(_PLACEMENT_SEEDS),
    )


def scripts() -> st.SearchStrategy[tuple[StepScript, ...]]:
    """Draws a script for the scheduler; the empty draw leaves all to the policy."""
    steps = st.builds(
        StepScript,
        recompute=st.sampled_from(_PREEMPTED),
        swap=st.sampled_from(_PREEMPTED),
        caps=st.sampled_from(_CAPS),
        admit=st.sampled_from(_ADMITTED),
        rotation=st.sampled_from(_ROTATIONS),
    )
    return st.lists(steps, max_size=MAX_STEPS).map(tuple)


def symbolic_requests() -> st.SearchStrategy[RequestSpec]:
    """Draws a short request over few tokens; the prompt is one choice, which keeps drawing and shrinking fast."""
    return st.builds(
        lambda prompt, max_tokens, ignore_eos, arrival: RequestSpec(
            tuple(token_id % SYMBOLIC_ALPHABET for token_id in prompt), max_tokens, ignore_eos, arrival=arrival
        ),
        st.binary(min_size=1, max_size=MAX_OWN_TOKENS),
        st.sampled_from(_MAX_TOKENS),
        st.booleans(),
        st.sampled_from(_ARRIVALS),
    )


@st.composite
def symbolic_schedules(draw: Draw) -> Scenario:
    """Draws a schedule for the symbolic model; the empty draw is one request of one token, in one chunk, alone."""
    requests: list[RequestSpec] = []
    for request in draw(st.lists(symbolic_requests(), min_size=1, max_size=MAX_REQUESTS), label="requests"):
        requests.append(draw(scheduled(request, tuple(requests), has_text=True)))
    return Scenario(
        requests=tuple(requests),
        max_num_seqs=draw(st.sampled_from(_MAX_NUM_SEQS), label="max_num_seqs"),
        checkpoint=None,
        engine=draw(engine_specs(), label="engine"),
        script=draw(scripts(), label="script"),
        is_symbolic=True,
    )
