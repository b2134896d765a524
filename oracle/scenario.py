"""One generated case as plain data: a checkpoint, a dtype, requests and a schedule; saves to and loads from JSON."""

import json
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from oracle.checkpoints import CheckpointSpec
from oracle.engine_spec import EngineSpec, StepScript
from oracle.errors import ScenarioError
from oracle.sampling_spec import SamplingSpec
from oracle.spec_checks import are, check_choice, check_count, check_flag, check_ids, with_tuples
from refinfer.errors import SamplingParamsError
from refinfer.sampling import SamplingParams

DTYPES = ("float32", "float64", "bfloat16", "float16")
"""Dtypes in which a scenario can run."""

SCENARIO_VERSION = 4
"""Raised whenever an older file would no longer mean the same run."""

_NOT_A_SCENARIO = (KeyError, TypeError, ValueError, AttributeError, RecursionError)
"""What reading text of another shape raises."""


@dataclass(frozen=True)
class RequestSpec:
    """One request of a scenario.

    Attributes:
        prompt_token_ids: The prompt.
        max_tokens: Most output tokens.
        ignore_eos: Emit end-of-sequence tokens like any other and go on.
        cuts: Where the prompt is cut for chunked prefill: token counts, ascending, inside the prompt.
        arrival: The step before which it arrives, counted from 0; properties without a schedule give all at once.
        sampling: Its own sampling parameters; properties without a schedule run it greedily.
        abort_step: The step before which it is aborted, if it has not ended by then; None for never.
        cache_salt: Only requests with the same one share a prefix.

    Raises:
        ScenarioError: A value is of another type, or no request could run with it.
    """

    prompt_token_ids: tuple[int, ...]
    max_tokens: int = 1
    ignore_eos: bool = False
    cuts: tuple[int, ...] = ()
    arrival: int = 0
    sampling: SamplingSpec = field(default_factory=SamplingSpec)
    abort_step: int | None = None
    cache_salt: str | None = None

    def __post_init__(self) -> None:
        check_ids("prompt_token_ids", self.prompt_token_ids)
        check_ids("cuts", self.cuts)
        check_count("max_tokens", self.max_tokens)
        check_flag("ignore_eos", self.ignore_eos)
        check_count("arrival", self.arrival, 0)
        if self.abort_step is not None:
            check_count("abort_step", self.abort_step, 0)
        if not self.prompt_token_ids:
            message = "a request has no prompt token; a scenario holds requests that can run"
            raise ScenarioError(message)
        if not isinstance(self.cache_salt, str | None) or not isinstance(self.sampling, SamplingSpec):
            message = f"cache_salt {self.cache_salt!r} is no text, or sampling {self.sampling!r} has no parameters"
            raise ScenarioError(message)
        bounds = (0, *self.cuts, len(self.prompt_token_ids))
        if any(start >= end for start, end in pairwise(bounds)):
            message = f"cuts {self.cuts} do not ascend inside a prompt of {len(self.prompt_token_ids)} tokens"
            raise ScenarioError(message, cuts=self.cuts)
        try:
            hash(self.params)
        except (SamplingParamsError, TypeError, ValueError) as error:
            message = f"no request can sample with {self.sampling}: {error}"
            raise ScenarioError(message, sampling=self.sampling) from error

    @cached_property
    def params(self) -> SamplingParams:
        """What an engine is given for it."""
        return self.sampling.params(self.max_tokens, ignore_eos=self.ignore_eos)


@dataclass(frozen=True)
class Scenario:
    """What runs, in full; the same scenario is the same run everywhere.

    Attributes:
        requests: The requests, in the order in which they arrive.
        dtype: Dtype the subject runs in.
        max_num_seqs: Most requests in one step.
        batch_invariant: Whether the subject runs in the invariant manner of numerics, or in the plain one.
        texts: Texts to be turned into tokens; they run through no model.
        checkpoint: The generated model; None stands for a checkpoint that is named beside the scenario.
        engine: Settings of the engine, for properties that run a schedule.
        script: What the scheduler is made to do, step by step; afterwards the shipped policy decides.
        is_symbolic: Whether it runs on the symbolic model, which has neither checkpoint nor dtype.

    Raises:
        ScenarioError: A value is of another type, or nothing could run with it.
    """

    requests: tuple[RequestSpec, ...]
    dtype: str = "float32"
    max_num_seqs: int = 16
    batch_invariant: bool = True
    texts: tuple[str, ...] = ()
    checkpoint: CheckpointSpec | None = field(default_factory=CheckpointSpec)
    engine: EngineSpec = field(default_factory=EngineSpec)
    script: tuple[StepScript, ...] = ()
    is_symbolic: bool = False

    def __post_init__(self) -> None:
        check_count("max_num_seqs", self.max_num_seqs)
        check_choice("dtype", self.dtype, DTYPES)
        check_flag("batch_invariant", self.batch_invariant)
        check_flag("is_symbolic", self.is_symbolic)
        is_legal_by_name = {
            "requests": bool(self.requests) and are(RequestSpec, self.requests),
            "texts": are(str, self.texts),
            "checkpoint": self.checkpoint is None or isinstance(self.checkpoint, CheckpointSpec),
            "engine": isinstance(self.engine, EngineSpec),
            "script": are(StepScript, self.script),
        }
        for name, is_legal in is_legal_by_name.items():
            if not is_legal:
                message = f"{name} is {getattr(self, name)!r}, with which nothing can run"
                raise ScenarioError(message, name=name)

    def alone(self, index: int) -> "Scenario":
        """Gives the scenario in which one request runs by itself."""
        return replace(self, requests=(self.requests[index],))

    def reordered(self, order: tuple[int, ...]) -> "Scenario":
        """Gives the scenario in which the requests arrive in another order."""
        return replace(self, requests=tuple(self.requests[index] for index in order))

    @property
    def max_model_len(self) -> int:
        """The longest that a request may be in tokens, prompt and output together; every prompt has room for one more.

        It is as long as the longest request would be, unless the engine's settings cut it short.
        """
        longest = max(len(request.prompt_token_ids) + request.max_tokens for request in self.requests)
        least = 1 + max(len(request.prompt_token_ids) for request in self.requests)
        return max(least, longest - self.engine.max_model_len_cut)

    @property
    def num_tokens(self) -> int:
        """Tokens of all prompts and outputs together, as many as may come."""
        return sum(len(request.prompt_token_ids) + request.max_tokens for request in self.requests)

    def to_json(self) -> str:
        """Gives the scenario as text that `from_json` reads back."""
        return json.dumps({"version": SCENARIO_VERSION, **asdict(self)}, indent=1)

    @classmethod
    def from_json(cls, text: str) -> "Scenario":
        """Reads a scenario.

        Raises:
            ScenarioError: The text is no scenario, or one of another version.
        """
        try:
            raw: dict[str, Any] = json.loads(text)
            version = raw.pop("version")
            requests = raw.pop("requests")
            checkpoint = raw.pop("checkpoint")
            engine, script = raw.pop("engine"), raw.pop("script")
        except _NOT_A_SCENARIO as error:
            raise _not_a_scenario(error) from error
        if version != SCENARIO_VERSION:
            message = f"the scenario has version {version!r}; this harness reads version {SCENARIO_VERSION}"
            raise ScenarioError(message, version=version)
        try:
            return cls(
                requests=tuple(
                    RequestSpec(**_tupled(request) | {"sampling": SamplingSpec(**_tupled(request["sampling"]))})
                    for request in requests
                ),
                checkpoint=None if checkpoint is None else CheckpointSpec(**_tupled(checkpoint)),
                engine=EngineSpec(**_tupled(engine)),
                script=tuple(StepScript(**_tupled(step)) for step in script),
                **_tupled(raw),
            )
        except ScenarioError:
            raise
        except _NOT_A_SCENARIO as error:
            raise _not_a_scenario(error) from error

    @classmethod
    def load(cls, path: Path) -> "Scenario":
        """Reads a scenario from a file.

        Raises:
            ScenarioError: The file cannot be read or holds no scenario.
        """
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            message = f"{path} cannot be read ({error}); give a scenario file that a check has written"
            raise ScenarioError(message, path=path) from error
        return cls.from_json(text)


def _not_a_scenario(error: Exception) -> ScenarioError:
    return ScenarioError(f"the text is not a scenario: {error!r}; `to_json` writes one")


def _tupled(raw: dict[str, Any]) -> dict[str, Any]:
    return {name: with_tuples(value) for name, value in raw.items()}
