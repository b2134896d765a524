"""What did vLLM give? Its outputs as the harness's, unchanged."""

from collections.abc import Iterable, Mapping
from typing import Any

from oracle.engines.messages import EngineOutput, EngineRequest, EngineSample


class Answers:
    """The samples of the requests of one run, each as it stands after the last step.

    vLLM gives each sample on its own, all of it so far, after every step in which it grew.
    """

    def __init__(self) -> None:
        self._sample_by_place: dict[tuple[str, int], Any] = {}
        self._prompt_logprobs_by_id: dict[str, Any] = {}
        self._refusal_by_id: dict[str, str] = {}
        self._aborted: set[str] = set()

    def take(self, outputs: Iterable[Any]) -> int:
        """Takes in what one step gave; tells of how many samples."""
        number = 0
        for output in outputs:
            for sample in output.outputs:
                self._sample_by_place[output.request_id, sample.index] = sample
                number += 1
            if output.prompt_logprobs is not None and output.request_id not in self._prompt_logprobs_by_id:
                self._prompt_logprobs_by_id[output.request_id] = output.prompt_logprobs
        return number

    def refuse(self, request_id: str, words: str) -> None:
        """Notes that a request was not taken."""
        self._refusal_by_id[request_id] = words

    def abort(self, request_id: str) -> None:
        """Notes that a request was aborted."""
        self._aborted.add(request_id)

    def is_to_be_aborted(self, request: EngineRequest) -> bool:
        """Tells whether a request has so many tokens that it is to be aborted now."""
        if request.abort_after is None or request.request_id in self._aborted | set(self._refusal_by_id):
            return False
        samples = self._samples(request.request_id)
        is_running = any(sample.finish_reason is None for sample in samples)
        return is_running and max(len(sample.token_ids) for sample in samples) >= request.abort_after

    def output_of(self, request: EngineRequest) -> EngineOutput:
        """Gives what came for a request."""
        request_id = request.request_id
        if request_id in self._refusal_by_id:
            return EngineOutput(request_id, refused=self._refusal_by_id[request_id])
        prompt_logprobs = self._prompt_logprobs_by_id.get(request_id)
        samples = [
            sample_of(sample, request.parameters, is_aborted=request_id in self._aborted)
            for sample in self._samples(request_id)
        ]
        if request_id in self._aborted:
            # Those that had not begun are aborted as well.
            samples += [EngineSample((), finish_reason="abort")] * (request.parameters.get("n", 1) - len(samples))
        return EngineOutput(
            request_id,
            samples=tuple(samples),
            prompt_logprobs=None if prompt_logprobs is None else tuple(map(_values_by_token, prompt_logprobs)),
        )

    def _samples(self, request_id: str) -> list[Any]:
        places = sorted(place for place in self._sample_by_place if place[0] == request_id)
        return [self._sample_by_place[place] for place in places]


def sample_of(sample: Any, parameters: Mapping[str, Any], *, is_aborted: bool) -> EngineSample:
    """Gives one `CompletionOutput` as the harness's sample.

    Args:
        sample: What vLLM gave.
        parameters: What the request asked for.
        is_aborted: Whether the request was aborted, of which vLLM gives no last output.
    """
    token_ids = tuple(sample.token_ids)
    finish_reason = sample.finish_reason
    if finish_reason is None and is_aborted:
        finish_reason = "abort"
    entries = sample.logprobs
    logprobs = top_logprobs = logits = None
    if entries is not None and parameters.get("logits"):
        logits = tuple(_row_of(entry) for entry in entries)
    elif entries is not None:
        logprobs = tuple(entry[token_id].logprob for entry, token_id in zip(entries, token_ids, strict=False))
        top_logprobs = tuple(_likeliest(entry, parameters.get("logprobs")) for entry in entries)
    return EngineSample(
        token_ids,
        finish_reason=finish_reason,
        stop_token_id=sample.stop_reason if isinstance(sample.stop_reason, int) else None,
        logprobs=logprobs,
        top_logprobs=top_logprobs,
        logits=logits,
    )


def _likeliest(entry: Mapping[int, Any], number: int | None) -> dict[int, float]:
    """Gives the tokens that vLLM ranks among so many likeliest; the chosen token stands beside them in any case."""
    most = len(entry) if number is None or number < 0 else number
    return {token_id: item.logprob for token_id, item in entry.items() if item.rank <= most}


def _row_of(entry: Mapping[int, Any]) -> tuple[float, ...]:
    return tuple(entry[token_id].logprob for token_id in sorted(entry))


def _values_by_token(entry: Mapping[int, Any] | None) -> dict[int, float] | None:
    return None if entry is None else {token_id: item.logprob for token_id, item in entry.items()}
