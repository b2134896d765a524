"""One generated case as plain data: a checkpoint, a dtype, and requests; saves to and loads from JSON."""

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from oracle.checkpoints import CheckpointSpec
from oracle.errors import ScenarioError

SCENARIO_VERSION = 1
"""Raised whenever an older file would no longer mean the same run."""


@dataclass(frozen=True)
class RequestSpec:
    """One request of a scenario.

    Attributes:
        prompt_token_ids: The prompt.
        max_tokens: Most output tokens.
        ignore_eos: Emit end-of-sequence tokens like any other and go on.
        cuts: Where the prompt is cut for chunked prefill: token counts, ascending, inside the prompt.
    """

    prompt_token_ids: tuple[int, ...]
    max_tokens: int = 1
    ignore_eos: bool = False
    cuts: tuple[int, ...] = ()


@dataclass(frozen=True)
class Scenario:
    """What runs, in full; the same scenario is the same run everywhere.

    Attributes:
        requests: The requests, in the order in which they arrive.
        dtype: Dtype the subject runs in.
        max_num_seqs: Most requests in one step.
        texts: Texts to be turned into tokens; they run through no model.
        checkpoint: The generated model; None stands for a checkpoint that is named beside the scenario.
    """

    requests: tuple[RequestSpec, ...]
    dtype: str = "float32"
    max_num_seqs: int = 16
    texts: tuple[str, ...] = ()
    checkpoint: CheckpointSpec | None = field(default_factory=CheckpointSpec)

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
            if version != SCENARIO_VERSION:
                message = f"the scenario has version {version!r}; this harness reads version {SCENARIO_VERSION}"
                raise ScenarioError(message, version=version)
            requests = tuple(RequestSpec(**_with_tuples(request)) for request in raw.pop("requests"))
            checkpoint = raw.pop("checkpoint")
            spec = None if checkpoint is None else CheckpointSpec(**_with_tuples(checkpoint))
            return cls(requests=requests, checkpoint=spec, **_with_tuples(raw))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, ScenarioError):
                raise
            message = f"the text is not a scenario: {error!r}; `to_json` writes one"
            raise ScenarioError(message) from error

    @classmethod
    def load(cls, path: Path) -> "Scenario":
        """Reads a scenario from a file.

        Raises:
            ScenarioError: The file cannot be read or holds no scenario.
        """
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            message = f"{path} cannot be read ({error}); give a scenario file that a check has written"
            raise ScenarioError(message, path=path) from error
        return cls.from_json(text)


def _with_tuples(raw: dict[str, Any]) -> dict[str, Any]:
    """JSON has lists only; the frozen values have tuples."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in raw.items()}
