"""A manager of transformers' continuous batching, stepped by hand instead of by its own thread.

Each step is one turn of the loop that its thread runs, so that arrivals and aborts can be counted in steps. An error in
a step is the end of a manager, as it is there.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from transformers import ContinuousBatchingConfig, GenerationConfig

from oracle.engines.adapters.hugging_face_batch_settings import (
    batching_arguments,
    generation_arguments,
    request_arguments,
)
from oracle.engines.messages import EngineOutput, EngineRequest, EngineSample

MAX_IDLE_STEPS = 50
"""Steps without a batch, while requests wait, after which it counts as stuck."""


class SteppedManager:
    """One manager with its requests.

    Args:
        model: A model of transformers.
        knobs: As declared.
        fixed: What all of its requests share.
    """

    def __init__(self, model: Any, knobs: Mapping[str, Any], fixed: Mapping[str, Any]) -> None:
        generation: Any = GenerationConfig(  # type: ignore[no-untyped-call]  # it comes without types
            **generation_arguments(fixed, model.config.get_text_config().vocab_size)
        )
        self._manager = model.init_continuous_batching(
            generation_config=generation,
            continuous_batching_config=ContinuousBatchingConfig(**batching_arguments(knobs, fixed)),
        )
        self._processor = self._manager._create_batch_processor()  # noqa: SLF001 - as its thread begins
        self._manager.batch_processor = self._processor
        self._manager.current_batch = 0
        self._num_samples = fixed["n"]
        self._requests: dict[str, EngineRequest] = {}
        self._output_by_id: dict[str, Any] = {}
        self._aborted: set[str] = set()
        self._num_idle = 0
        self._witnesses: Counter[str] = Counter()
        self._count_prefix_matches()

    def _count_prefix_matches(self) -> None:
        search = self._processor.cache.search_prefix_match

        def counting_search(request_id: str, prompt_ids: list[int]) -> int:
            number: int = search(request_id, prompt_ids)
            self._witnesses["cached_tokens"] += number
            return number

        self._processor.cache.search_prefix_match = counting_search

    def begin(self, witnesses: Counter[str]) -> None:
        """Forgets the requests of an earlier run, and counts in `witnesses` from now on."""
        self._witnesses = witnesses
        self._requests, self._output_by_id, self._aborted, self._num_idle = {}, {}, set(), 0

    def add(self, request: EngineRequest, stop_token_ids: Sequence[int]) -> None:
        """Hands a request over; one that is to be aborted tells each token as it comes."""
        self._requests[request.request_id] = request
        self._manager.add_request(
            list(request.prompt_token_ids),
            request_id=request.request_id,
            max_new_tokens=request.max_tokens,
            eos_token_id=list(stop_token_ids) or None,
            streaming=request.abort_after is not None,
            **request_arguments(request.parameters),
        )

    @property
    def is_busy(self) -> bool:
        """Whether any of its requests has not ended."""
        return not all(map(self._has_ended, self._requests)) or self._processor.has_pending_requests()

    def _has_ended(self, request_id: str) -> bool:
        if request_id in self._aborted:
            return True
        outputs = [self._output_by_id.get(name) for name in self._names(request_id)]
        failed = any(output is not None and output.error is not None for output in outputs)
        return failed or all(output is not None and output.is_finished() for output in outputs)

    def _names(self, request_id: str) -> list[str]:
        """Gives how the manager calls each sample of a request."""
        return [request_id, *(f"{request_id}__child#{number}" for number in range(self._num_samples - 1))]

    def step(self) -> None:
        """Takes one turn of the manager's loop, and aborts what is due to be.

        Raises:
            RuntimeError: Requests wait, and no step runs any of them.
        """
        scheduler, number = self._processor.scheduler, self._manager.current_batch
        active = set(scheduler.active_requests)
        self._manager._wake_up_loop.set()  # noqa: SLF001 - a turn without a batch would wait for a tenth of a second
        self._manager._generation_loop_body(self._processor, bootstrapping=False)  # noqa: SLF001 - a turn of its thread
        if self._manager.current_batch > number:
            self._count(self._processor.inputs_and_outputs.requests_in_batch)
        self._witnesses["preemptions"] += len(active & set(scheduler.waiting_requests))
        while not self._manager.output_router.output_queue.empty():
            output = self._manager.output_router.output_queue.get()
            self._output_by_id[output.request_id] = output
        self._abort()
        self._watch(has_run=self._manager.current_batch > number)

    def _count(self, batch: Sequence[Any]) -> None:
        self._witnesses["max_batch"] = max(self._witnesses["max_batch"], len(batch))
        self._witnesses["chunks"] += sum(not future.has_new_token for future in batch)

    def _abort(self) -> None:
        for request_id, request in self._requests.items():
            if request.abort_after is None or self._has_ended(request_id):
                continue
            if max(len(self._tokens(name)) for name in self._names(request_id)) >= request.abort_after:
                for name in self._names(request_id):
                    self._manager.cancel_request(name)
                self._aborted.add(request_id)
                self._witnesses["aborts"] += 1

    def _watch(self, *, has_run: bool) -> None:
        self._num_idle = 0 if has_run else self._num_idle + 1
        waiting = sorted(self._processor.scheduler.waiting_requests)
        if self._num_idle >= MAX_IDLE_STEPS and waiting:
            message = f"{', '.join(waiting)} wait, and {MAX_IDLE_STEPS} turns of the loop ran nothing"
            raise RuntimeError(message)

    def _tokens(self, name: str) -> list[int]:
        output = self._output_by_id.get(name)
        return [] if output is None else list(output.generated_tokens)

    @property
    def num_held_blocks(self) -> int:
        """Blocks that stand in the block table of a request."""
        allocators = self._processor.cache.cache_allocators.values()
        return sum(len(table) for allocator in allocators for table in allocator.block_table.values())

    def output(self, request_id: str) -> EngineOutput:
        """Gives what came of a request; what the manager says of a request that failed is a refusal."""
        names = self._names(request_id)
        outputs = [self._output_by_id[name] for name in names if name in self._output_by_id]
        errors = [output.error for output in outputs if output.error is not None]
        if errors:
            return EngineOutput(request_id, refused=str(errors[0]))
        return EngineOutput(request_id, tuple(self._sample(request_id, name) for name in names))

    def _sample(self, request_id: str, name: str) -> EngineSample:
        output = self._output_by_id.get(name)
        is_wanted = self._requests[request_id].parameters.get("logprobs") is not None
        return EngineSample(
            token_ids=tuple(self._tokens(name)),
            finish_reason="abort" if request_id in self._aborted else None,
            logprobs=(() if output is None else tuple(output.logprobs)) if is_wanted else None,
        )
