"""How do requests go into openvino-genai, and how is what comes out of it read?"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import openvino
import openvino_genai

from oracle.engines.adapter import Refused
from oracle.engines.messages import EngineOutput, EngineRequest, EngineSample

PARAMETERS = (
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "seed",
    "n",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "min_tokens",
    "ignore_eos",
    "stop_token_ids",
    "logprobs",
    "prompt_logprobs",
)

NAME_BY_PARAMETER = {
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "seed": "rng_seed",
    "n": "num_return_sequences",
    "repetition_penalty": "repetition_penalty",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "min_tokens": "min_new_tokens",
    "ignore_eos": "ignore_eos",
}
"""What a generation config calls them; the others are put together out of several fields."""

NUM_ASSISTANT_TOKENS = 3

MAX_NGRAM_SIZE = 2

_ENDINGS = {"STOP": "stop", "LENGTH": "length"}


def generation_settings(
    request: EngineRequest, eos_token_ids: Sequence[int], *, speculation: str | None = None
) -> dict[str, Any]:
    """Gives the fields of a generation config that ask for what a request asks for.

    Raises:
        Refused: A generation config cannot ask for it.
    """
    asked = {name: value for name, value in request.parameters.items() if value is not None}
    unknown = sorted(set(asked) - set(PARAMETERS))
    if unknown:
        message = f"a generation config has no {', '.join(unknown)}"
        raise Refused(message)
    settings = {NAME_BY_PARAMETER[name]: value for name, value in asked.items() if name in NAME_BY_PARAMETER}
    settings |= {"max_new_tokens": request.max_tokens, "eos_token_id": eos_token_ids[0]}
    settings |= _ending_settings(asked, eos_token_ids) | _score_settings(asked)
    temperature = asked.get("temperature", 0.0)
    if temperature != 0.0:
        settings |= {"do_sample": True, "temperature": temperature}
    if speculation is not None:
        settings["num_assistant_tokens"] = NUM_ASSISTANT_TOKENS
    if speculation == "prompt-lookup":
        settings["max_ngram_size"] = MAX_NGRAM_SIZE
    return settings


def _ending_settings(asked: dict[str, Any], eos_token_ids: Sequence[int]) -> dict[str, Any]:
    """Every EOS token of a checkpoint is a stop token here, since a generation config has room for one."""
    stop_token_ids = set(asked.get("stop_token_ids", ()))
    if not asked.get("ignore_eos"):
        stop_token_ids |= set(eos_token_ids)
    return {"stop_token_ids": stop_token_ids} if stop_token_ids else {}


def _score_settings(asked: dict[str, Any]) -> dict[str, Any]:
    """Scores of a prompt come where the prompt is echoed."""
    settings = {"logprobs": 1} if {"logprobs", "prompt_logprobs"} & set(asked) else {}
    return settings | ({"echo": True} if "prompt_logprobs" in asked else {})


@dataclass
class Live:
    """One request in the engine, and what came of it."""

    request: EngineRequest
    number: int
    settings: dict[str, Any]
    handle: Any = None
    refused: str | None = None
    is_aborted: bool = False
    ids_by_sequence: dict[int, list[int]] = field(default_factory=dict)
    scores_by_sequence: dict[int, list[float]] = field(default_factory=dict)
    ending_by_sequence: dict[int, str | None] = field(default_factory=dict)

    def begin(self, pipeline: Any) -> None:
        """Hands it to the engine, which may not take it."""
        if self.refused is not None:
            return
        prompt = openvino.Tensor(np.array([self.request.prompt_token_ids], dtype=np.int64))
        try:
            config = openvino_genai.GenerationConfig(**self.settings)
            self.handle = pipeline.add_request(self.number, prompt, config)
        except (RuntimeError, TypeError) as error:
            self.refused = _words(error)

    def read(self) -> None:
        """Takes what the engine has put out since."""
        while self.handle is not None and self.handle.can_read():
            for sequence, output in self.handle.read().items():
                self.ids_by_sequence.setdefault(sequence, []).extend(output.generated_ids)
                self.scores_by_sequence.setdefault(sequence, []).extend(output.generated_log_probs)
                self.ending_by_sequence[sequence] = _ENDINGS.get(output.finish_reason.name)
        if self.handle is not None and not self.is_aborted and self.handle.get_status().name == "IGNORED":
            self.refused = "IGNORED: its keys and values do not fit into the cache"
        limit = self.request.abort_after
        longest = max(map(len, self.ids_by_sequence.values()), default=0)
        if limit is not None and longest >= limit and not self.is_aborted and self.is_running():
            self.is_aborted = True
            self.handle.cancel()

    def is_running(self) -> bool:
        """Tells whether the engine still works on it."""
        return self.handle is not None and self.handle.get_status().name == "RUNNING"

    def output(self) -> EngineOutput:
        """Gives what came of it, as the protocol has it."""
        if self.refused is not None:
            return EngineOutput(self.request.request_id, refused=self.refused)
        has_echo = bool(self.settings.get("echo"))
        samples = tuple(self._sample(sequence, has_echo=has_echo) for sequence in sorted(self.ids_by_sequence))
        if not has_echo or not samples:
            return EngineOutput(self.request.request_id, samples)
        scores = self.scores_by_sequence[min(self.ids_by_sequence)]
        prompt = self.request.prompt_token_ids
        shown = (None, *({token_id: score} for token_id, score in zip(prompt[1:], scores[1:], strict=False)))
        return EngineOutput(self.request.request_id, samples, shown)

    def _sample(self, sequence: int, *, has_echo: bool) -> EngineSample:
        num_echoed = len(self.request.prompt_token_ids) if has_echo else 0
        ids = tuple(self.ids_by_sequence[sequence][num_echoed:])
        ending = "abort" if self.is_aborted else self.ending_by_sequence[sequence]
        if self.request.parameters.get("logprobs") is None:
            return EngineSample(ids, ending)
        return EngineSample(ids, ending, logprobs=tuple(self.scores_by_sequence[sequence][num_echoed:]))


class Batch:
    """Requests that the engine runs together, step by step."""

    def __init__(self, pipeline: Any, lives: list[Live]) -> None:
        self._pipeline = pipeline
        self.lives = lives
        self.witnesses = {"max_batch": 0, "steps": 0}

    def run(self) -> None:
        """Runs all of them to their ends."""
        waiting = sorted(self.lives, key=lambda live: live.request.arrival)
        while waiting or self._pipeline.has_non_finished_requests():
            while waiting and (
                waiting[0].request.arrival <= self.witnesses["steps"] or not self._pipeline.has_non_finished_requests()
            ):
                waiting.pop(0).begin(self._pipeline)
            if self._pipeline.has_non_finished_requests():
                self._pipeline.step()
                num_scheduled = int(self._pipeline.get_metrics().scheduled_requests)
                self.witnesses["max_batch"] = max(self.witnesses["max_batch"], num_scheduled)
            self.witnesses["steps"] += 1
            for live in self.lives:
                live.read()


def _words(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
