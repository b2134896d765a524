"""What an engine is asked, and what it must hand back: plain data that travels as JSON."""

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class EngineRequest:
    """One request to an engine, in token ids.

    Attributes:
        request_id: Its name; the output that answers it carries the same.
        prompt_token_ids: The prompt.
        max_tokens: Most output tokens.
        parameters: What it asks for besides, by the names of `oracle.engines.parameters.PARAMETERS`; what is
            not named has its default.
        arrival: After how many steps of the run it comes; 0 for the start. Engines without "arrivals" get 0 only.
        abort_after: After how many of its own output tokens it is aborted; None for never.
    """

    request_id: str
    prompt_token_ids: tuple[int, ...]
    max_tokens: int
    parameters: dict[str, Any] = field(default_factory=dict)
    arrival: int = 0
    abort_after: int | None = None

    def to_data(self) -> dict[str, Any]:
        """Gives it as plain data, for JSON."""
        return asdict(self)

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> "EngineRequest":
        """Reads plain data, from JSON."""
        return cls(**{**data, "prompt_token_ids": tuple(data["prompt_token_ids"])})


@dataclass(frozen=True)
class EngineSample:
    """One answer to a request; a request with `n` parameters above 1 has several.

    Attributes:
        token_ids: The output.
        finish_reason: "stop", "length" or "abort"; None where the engine does not say.
        stop_token_id: The token that ended it, where the engine says so or leaves it out of the output.
        logprobs: The log-probability of each output token.
        top_logprobs: For each output token the likeliest tokens with their log-probabilities.
        logits: For each output token the row of logits that it was picked from.
    """

    token_ids: tuple[int, ...]
    finish_reason: str | None = None
    stop_token_id: int | None = None
    logprobs: tuple[float, ...] | None = None
    top_logprobs: tuple[dict[int, float], ...] | None = None
    logits: tuple[tuple[float, ...], ...] | None = None

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> "EngineSample":
        """Reads plain data, from JSON, where keys of objects are text."""
        values = dict(data)
        values["token_ids"] = tuple(data["token_ids"])
        if data.get("logprobs") is not None:
            values["logprobs"] = tuple(data["logprobs"])
        if data.get("top_logprobs") is not None:
            values["top_logprobs"] = tuple(
                {int(token_id): value for token_id, value in entry.items()} for entry in data["top_logprobs"]
            )
        if data.get("logits") is not None:
            values["logits"] = tuple(tuple(row) for row in data["logits"])
        return cls(**values)


@dataclass(frozen=True)
class EngineOutput:
    """What an engine gave for one request.

    Attributes:
        request_id: The request's.
        samples: Its answers, in order.
        prompt_logprobs: For each prompt token the likeliest tokens and the token itself with their
            log-probabilities; None for the first, before which nothing stands.
        refused: Why the engine did not take the request, in its own words; None where it did.
    """

    request_id: str
    samples: tuple[EngineSample, ...] = ()
    prompt_logprobs: tuple[dict[int, float] | None, ...] | None = None
    refused: str | None = None

    def to_data(self) -> dict[str, Any]:
        """Gives it as plain data, for JSON; what is None is left out."""
        data = {name: value for name, value in asdict(self).items() if value is not None}
        data["samples"] = [
            {name: value for name, value in sample.items() if value is not None} for sample in data["samples"]
        ]
        return data

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> "EngineOutput":
        """Reads plain data, from JSON."""
        values = dict(data)
        values["samples"] = tuple(EngineSample.from_data(sample) for sample in data.get("samples", ()))
        if data.get("prompt_logprobs") is not None:
            values["prompt_logprobs"] = tuple(
                None if entry is None else {int(token_id): value for token_id, value in entry.items()}
                for entry in data["prompt_logprobs"]
            )
        return cls(**values)


@dataclass(frozen=True)
class EngineRun:
    """What an engine gave for one run of requests.

    Attributes:
        outputs: One for each request, in the order of the requests.
        witnesses: What happened, by name: "preemptions", "cached_tokens", "max_batch" and others.
    """

    outputs: tuple[EngineOutput, ...]
    witnesses: dict[str, int] = field(default_factory=dict)

    def to_data(self) -> dict[str, Any]:
        """Gives it as plain data, for JSON."""
        return {"outputs": [output.to_data() for output in self.outputs], "witnesses": self.witnesses}

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> "EngineRun":
        """Reads plain data, from JSON."""
        return cls(tuple(EngineOutput.from_data(output) for output in data["outputs"]), dict(data["witnesses"]))
