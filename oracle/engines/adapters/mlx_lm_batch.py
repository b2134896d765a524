"""Requests that come, run and leave together in one `BatchGenerator` of mlx-lm."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from mlx_lm.generate import BatchGenerator, StopSequences

from oracle.engines.adapters.mlx_lm_model import OpenModel, processors_of, sampler_of
from oracle.engines.adapters.mlx_lm_settings import Transcript, segments_of, stop_token_ids_of
from oracle.engines.messages import EngineOutput, EngineRequest


class BatchRun:
    """One run of requests, step by step.

    Args:
        opened: The model in its setting.
        generator: Of an earlier run, all of whose requests have left; None for a new one.
        witnesses: What is counted.
    """

    def __init__(self, opened: OpenModel, generator: Any, witnesses: Counter[str]) -> None:
        self._opened = opened
        self.generator = make_generator(opened) if generator is None else generator
        self._witnesses = witnesses
        self._transcripts: dict[int, Transcript] = {}
        self._outputs: dict[str, EngineOutput] = {}

    def run(self, requests: Sequence[EngineRequest]) -> dict[str, EngineOutput]:
        """Runs until each request has ended; gives outputs by request id."""
        waiting = sorted(requests, key=lambda request: request.arrival)
        num_steps = 0
        while waiting or self._transcripts:
            while waiting and waiting[0].arrival <= num_steps:
                self._insert(waiting.pop(0), is_late=num_steps > 0)
            self._step()
            num_steps += 1
        self._witnesses["steps"] += num_steps
        return self._outputs

    def _insert(self, request: EngineRequest, *, is_late: bool) -> None:
        cache, num_cached = self._opened.fetch(request.prompt_token_ids)
        prompt = list(request.prompt_token_ids)
        stops = stop_token_ids_of(request.parameters, self._opened.eos_token_ids)
        try:
            (uid,) = self.generator.insert_segments(
                [segments_of(prompt[num_cached:], self._opened.knobs["segment_size"])],
                max_tokens=[request.max_tokens],
                caches=[cache],
                all_tokens=[prompt[:num_cached]],
                samplers=[sampler_of(request.parameters)],
                logits_processors=[processors_of(request.parameters)],
                stop_sequences=[StopSequences([(token_id,) for token_id in sorted(stops)])],
            )
        except ValueError as error:
            self._outputs[request.request_id] = EngineOutput(request.request_id, refused=str(error))
            return
        self._transcripts[uid] = Transcript(request)
        self._witnesses["cached_tokens"] += num_cached
        self._witnesses["arrivals"] += is_late

    def _step(self) -> None:
        prompts, responses = self.generator.next()
        self._witnesses["chunks"] += len(prompts)
        self._witnesses["max_batch"] = max(self._witnesses["max_batch"], len(responses))
        for response in responses:
            self._take_down(response)
        for uid in [uid for uid, transcript in self._transcripts.items() if transcript.is_due_to_abort]:
            self._abort(uid)

    def _take_down(self, response: Any) -> None:
        transcript = self._transcripts[response.uid]
        transcript.token_ids.append(int(response.token))
        if transcript.wants_scores:
            transcript.rows.append(response.logprobs.tolist())
        if response.finish_reason is not None:
            transcript.finish_reason = response.finish_reason
            self._end(response.uid)
            self._opened.keep(response.all_tokens, response.prompt_cache)

    def _abort(self, uid: int) -> None:
        removed = self.generator.remove([uid], return_prompt_caches=self._opened.kept is not None)
        self._transcripts[uid].finish_reason = "abort"
        self._witnesses["aborts"] += 1
        self._end(uid)
        if uid in removed:
            cache, token_ids = removed[uid]
            self._opened.keep(token_ids, cache)

    def _end(self, uid: int) -> None:
        transcript = self._transcripts.pop(uid)
        self._outputs[transcript.request.request_id] = transcript.output()


def make_generator(opened: OpenModel) -> Any:
    """Makes a generator with the settings of an open model."""
    knobs = opened.knobs
    return BatchGenerator(
        opened.model,
        completion_batch_size=knobs["completion_batch_size"],
        prefill_batch_size=knobs["prefill_batch_size"],
        prefill_step_size=knobs["prefill_step_size"],
        max_kv_size=knobs["max_kv_size"],
    )
