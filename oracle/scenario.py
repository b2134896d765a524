"""One generated case as plain data: a checkpoint, a dtype, and requests; saves to and loads from JSON."""

import json
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from oracle.checkpoints import CheckpointSpec
from oracle.errors import ScenarioError

DTYPES = ("float32", "float64", "bfloat16", "float16")
"""Dtypes in which a scenario can run."""

SCENARIO_VERSION = 2
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
        arrival: The step of a chunked run in which its first chunk may run; engines are given all at once.

    Raises:
        ScenarioError: A value is of another type, or no request could run with it.
    """

    prompt_token_ids: tuple[int, ...]
    max_tokens: int = 1
    ignore_eos: bool = False
    cuts: tuple[int, ...] = ()
    arrival: int = 0

    def __post_init__(self) -> None:
        _check_ids("prompt_token_ids", self.prompt_token_ids)
        _check_ids("cuts", self.cuts)
        _check_count("max_tokens", self.max_tokens)
        if not self.prompt_token_ids:
            message = "a request has no prompt token; a scenario holds requests that can run"
            raise ScenarioError(message)
        if not isinstance(self.ignore_eos, bool):
            message = f"ignore_eos is {self.ignore_eos!r}; it must be true or false"
            raise ScenarioError(message, ignore_eos=self.ignore_eos)
        if not isinstance(self.arrival, int) or self.arrival < 0:
            message = f"arrival is {self.arrival!r}; it must be a step, counted from 0"
            raise ScenarioError(message, arrival=self.arrival)
        bounds = (0, *self.cuts, len(self.prompt_token_ids))
        if any(start >= end for start, end in pairwise(bounds)):
            message = f"cuts {self.cuts} do not ascend inside a prompt of {len(self.prompt_token_ids)} tokens"
            raise ScenarioError(message, cuts=self.cuts)


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

    Raises:
        ScenarioError: A value is of another type, or nothing could run with it.
    """

    requests: tuple[RequestSpec, ...]
    dtype: str = "float32"
    max_num_seqs: int = 16
    batch_invariant: bool = True
    texts: tuple[str, ...] = ()
    checkpoint: CheckpointSpec | None = field(default_factory=CheckpointSpec)

    def __post_init__(self) -> None:
        _check_count("max_num_seqs", self.max_num_seqs)
        is_legal_by_name = {
            "requests": bool(self.requests) and _are(RequestSpec, self.requests),
            "dtype": self.dtype in DTYPES,
            "batch_invariant": isinstance(self.batch_invariant, bool),
            "texts": _are(str, self.texts),
            "checkpoint": self.checkpoint is None or isinstance(self.checkpoint, CheckpointSpec),
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
        except _NOT_A_SCENARIO as error:
            raise _not_a_scenario(error) from error
        if version != SCENARIO_VERSION:
            message = f"the scenario has version {version!r}; this harness reads version {SCENARIO_VERSION}"
            raise ScenarioError(message, version=version)
        try:
            return cls(
                requests=tuple(RequestSpec(**_with_tuples(request)) for request in requests),
                checkpoint=None if checkpoint is None else CheckpointSpec(**_with_tuples(checkpoint)),
                **_with_tuples(raw),
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


def _are(kind: type, values: object) -> bool:
    return isinstance(values, tuple) and all(isinstance(value, kind) for value in values)


def _check_ids(name: str, values: object) -> None:
    if not _are(int, values):
        message = f"{name} is {values!r}; it must hold whole numbers"
        raise ScenarioError(message, name=name)


def _check_count(name: str, value: object) -> None:
    if not isinstance(value, int) or value < 1:
        message = f"{name} is {value!r}; it must be a whole number of at least 1"
        raise ScenarioError(message, name=name)


def _not_a_scenario(error: Exception) -> ScenarioError:
    return ScenarioError(f"the text is not a scenario: {error!r}; `to_json` writes one")


def _with_tuples(raw: dict[str, Any]) -> dict[str, Any]:
    """JSON has lists only; the frozen values have tuples."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in raw.items()}
