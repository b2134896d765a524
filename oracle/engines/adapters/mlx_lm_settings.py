"""What mlx-lm takes, and how the words of the protocol become its own; nothing here needs it installed."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from oracle.engines.adapters.mlx_lm_families import CONFIGS, FAMILIES, exclusions_of_families
from oracle.engines.declaration import EngineDeclaration
from oracle.engines.messages import EngineOutput, EngineRequest, EngineSample

MAX_MODEL_LEN = 256

WAYS = ("single", "batch", "speculative")
"""How requests are run: `stream_generate` one by one, a `BatchGenerator`, or `stream_generate` with a draft."""

PROMPT_CACHES = ("none", "reuse", "saved")
"""Whether `LRUPromptCache` keeps prompts between requests, and whether what it keeps goes through a file."""

DRAFTS = ("noisy", "same")
"""Whose guesses are checked: those of a copy of the model with noise on its weights, or the model's own."""

KNOBS: dict[str, list[Any]] = {
    "config": list(CONFIGS),
    "way": list(WAYS),
    "prefill_step_size": [2048, 3, 16],
    "prompt_cache": list(PROMPT_CACHES),
    "max_kv_size": [None, MAX_MODEL_LEN + 44],
    "prefill_batch_size": [8, 1, 2],
    "completion_batch_size": [32, 2],
    "segment_size": [None, 4],
    "draft": list(DRAFTS),
    "num_draft_tokens": [2, 1, 4],
}
"""Settings with the values worth trying.

A rotating cache of `max_kv_size` is longer than any request, so that it may not change what comes. `segment_size` cuts
prompts for `insert_segments`; with a step of 3 tokens, each second chunk has one token.
"""

_KNOBS_OF_BATCHES = ("prefill_batch_size", "completion_batch_size", "segment_size")
_KNOBS_OF_DRAFTS = ("draft", "num_draft_tokens")


def _exclusions() -> tuple[dict[str, Any], ...]:
    """Gives the combinations in which a setting would mean nothing, or that mlx-lm refuses.

    A draft has no rotating cache of a chosen size.
    """
    idle = {
        "single": (*_KNOBS_OF_BATCHES, *_KNOBS_OF_DRAFTS),
        "batch": _KNOBS_OF_DRAFTS,
        "speculative": (*_KNOBS_OF_BATCHES, "max_kv_size"),
    }
    return (
        *({"way": way, name: value} for way, names in idle.items() for name in names for value in KNOBS[name][1:]),
        *exclusions_of_families(),
    )


_PARAMETERS = (
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "seed",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "ignore_eos",
    "stop_token_ids",
    "logprobs",
)

_PARAMETER_ORDER = (
    "logit_bias",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "top_p",
    "min_p",
    "top_k",
    "temperature",
)
"""As `make_logits_processors` and `make_sampler` line them up: filters see probabilities before temperature."""

WITNESSES = (
    "steps",
    "max_batch",
    "chunks",
    "cached_tokens",
    "accepted_tokens",
    "rejected_tokens",
    "arrivals",
    "aborts",
)


def declaration_of(version: str) -> EngineDeclaration:
    """Gives what mlx-lm claims, takes and shows."""
    return EngineDeclaration(
        name="mlx-lm",
        version=version,
        capabilities=("logprobs", "top_logprobs", "seeded_sampling", "batching", "arrivals", "aborts", "steps"),
        parameters=_PARAMETERS,
        parameter_order=_PARAMETER_ORDER,
        knobs=KNOBS,
        excluded_knobs=_exclusions(),
        families=FAMILIES,
        head_dims=(16,),
        penalties_count_prompt=True,
        scores_of="penalised",
        max_model_len=MAX_MODEL_LEN,
        witnesses=WITNESSES,
    )


def unknown_parameters(request: EngineRequest) -> list[str]:
    """Names what a request asks for that mlx-lm does not have."""
    return sorted(set(request.parameters) - set(_PARAMETERS))


def sampler_arguments(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Translates for `make_sampler`; what is not named keeps mlx-lm's default, which changes nothing."""
    names = {"temperature": "temp", "top_p": "top_p", "min_p": "min_p", "top_k": "top_k"}
    return {own: parameters[name] for name, own in names.items() if name in parameters}


def processor_arguments(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Translates for `make_logits_processors`; its windows of 20 tokens are widened to whole requests."""
    arguments: dict[str, Any] = {}
    for kind in ("repetition", "presence", "frequency"):
        if f"{kind}_penalty" in parameters:
            arguments[f"{kind}_penalty"] = parameters[f"{kind}_penalty"]
            arguments[f"{kind}_context_size"] = MAX_MODEL_LEN
    pairs = parameters.get("logit_bias")
    if pairs:
        arguments["logit_bias"] = {int(token_id): float(value) for token_id, value in pairs}
    return arguments


def eos_token_ids_of(config: Mapping[str, Any]) -> tuple[int, ...]:
    """Gives the ids that end a request, from a checkpoint's configuration."""
    value = config.get("eos_token_id")
    if value is None:
        return ()
    return (value,) if isinstance(value, int) else tuple(value)


def stop_token_ids_of(parameters: Mapping[str, Any], eos_token_ids: Iterable[int]) -> frozenset[int]:
    """Gives the ids that end one request."""
    eos = () if parameters.get("ignore_eos") else eos_token_ids
    return frozenset((*eos, *(parameters.get("stop_token_ids") or ())))


def segments_of(prompt: Sequence[int], size: int | None) -> list[list[int]]:
    """Cuts a prompt into segments of `size` tokens; a single one for None."""
    step = len(prompt) if size is None else size
    return [list(prompt[start : start + step]) for start in range(0, len(prompt), max(step, 1))]


@dataclass
class Transcript:
    """What has come of one request so far.

    Attributes:
        request: The request.
        token_ids: The output.
        rows: For each output token the log-probabilities of all tokens.
        finish_reason: In mlx-lm's words, or "abort"; None while it runs.
    """

    request: EngineRequest
    token_ids: list[int] = field(default_factory=list)
    rows: list[list[float]] = field(default_factory=list)
    finish_reason: str | None = None

    @property
    def is_due_to_abort(self) -> bool:
        """Whether it has come as far as it is to be aborted."""
        return self.request.abort_after is not None and len(self.token_ids) >= self.request.abort_after

    @property
    def wants_scores(self) -> bool:
        """Whether log-probabilities are asked for."""
        return self.request.parameters.get("logprobs") is not None

    def output(self) -> EngineOutput:
        """Gives it in the words of the protocol."""
        wanted = self.request.parameters.get("logprobs")
        sample = EngineSample(
            token_ids=tuple(self.token_ids),
            finish_reason=self.finish_reason,
            stop_token_id=self.token_ids[-1] if self.finish_reason == "stop" and self.token_ids else None,
            logprobs=None
            if wanted is None
            else tuple(row[token_id] for row, token_id in zip(self.rows, self.token_ids, strict=True)),
            top_logprobs=None if wanted is None else tuple(likeliest(row, int(wanted)) for row in self.rows),
        )
        return EngineOutput(self.request.request_id, (sample,))


def likeliest(row: Sequence[float], number: int) -> dict[int, float]:
    """Gives so many of the likeliest tokens; of equal ones the lower ids."""
    token_ids = sorted(range(len(row)), key=lambda token_id: (-row[token_id], token_id))
    return {token_id: row[token_id] for token_id in token_ids[:number]}


def count_guesses(are_drafts: Sequence[bool], num_draft_tokens: int, max_tokens: int) -> tuple[int, int]:
    """Counts drafted tokens that stood, and those that fell, from which tokens of an output were drafted.

    A round drafts as many tokens as are asked for and fit into `max_tokens`, and ends with one that was not drafted.
    """
    accepted = rejected = begin = 0
    for place, is_draft in enumerate(are_drafts):
        if not is_draft:
            stood = place - begin
            accepted += stood
            rejected += min(num_draft_tokens, max_tokens - begin) - stood
            begin = place + 1
    return accepted + len(are_drafts) - begin, rejected
