"""Drivers of Hugging Face transformers: `generate` alone, `generate` on a static batch, and `generate_batch`."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformers import AutoModelForCausalLM, ContinuousBatchingConfig, GenerationConfig, StoppingCriteria

from oracle.errors import EngineError
from tests.benchmarks.drivers import Run, Runner, batches_of, left_padded
from tests.benchmarks.workloads import Workload

POOL_TOKENS = 32768
"""Token places of the pool; left alone, it would take most of the memory that is free."""


class _Clock(StoppingCriteria):
    """Notes when each step of `generate` has chosen its tokens, and stops nothing."""

    def __init__(self, start: float) -> None:
        self.start = start
        self.times: list[float] = []

    def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:  # noqa: ARG002
        """Notes the time."""
        self.times.append(time.perf_counter() - self.start)
        return torch.zeros(len(input_ids), dtype=torch.bool)


class _Passes:
    """Counts the passes of a model."""

    def __init__(self, model: Any) -> None:
        self.count = 0
        model.register_forward_pre_hook(self._see)

    def _see(self, *_: Any) -> None:
        self.count += 1


@contextmanager
def generate(work: Workload, *, batch_size: int = 1) -> Iterator[Runner]:
    """`generate`, so many requests at a time, each batch until the longest of its answers has ended."""
    model = _loaded(work)
    passes = _Passes(model)

    def run() -> Run:
        passes.count = 0
        token_ids: list[list[int]] = []
        times: list[list[float]] = []
        start, processor_start = time.perf_counter(), time.process_time()
        for prompts, max_tokens in batches_of(work, batch_size):
            ids, mask = left_padded(prompts)
            clock = _Clock(start)
            with torch.no_grad():
                output = model.generate(
                    ids,
                    attention_mask=mask,
                    max_new_tokens=max(max_tokens),
                    do_sample=False,
                    stopping_criteria=[clock],
                )
            answers = output[:, ids.shape[1] :].tolist()
            token_ids += [answer[:most] for answer, most in zip(answers, max_tokens, strict=True)]
            times += [clock.times[:most] for most in max_tokens]
        seconds, processor_seconds = time.perf_counter() - start, time.process_time() - processor_start
        return Run(seconds, processor_seconds, token_ids, times, passes.count)

    yield run


@contextmanager
def generate_batch(
    work: Workload, *, page_size: int = 256, max_batch_tokens: int = 512, shares_prefixes: bool = False
) -> Iterator[Runner]:
    """Continuous batching over pages, through the manager that `generate_batch` wraps: here answers differ in length.

    It lets in as many requests as find room; how many run at a time is its own choice.
    """
    model = _loaded(work)
    model.set_attn_implementation("sdpa")
    passes = _Passes(model)
    settings = ContinuousBatchingConfig(
        page_size=page_size,
        num_blocks=POOL_TOKENS // page_size,
        max_batch_tokens=max_batch_tokens,
        allow_block_sharing=shares_prefixes,
    )
    # An id that no token has: the end of sequence is ignored
    choosing = GenerationConfig(max_new_tokens=1, do_sample=False, eos_token_id=-1, pad_token_id=0)

    def run() -> Run:
        passes.count = 0
        with model.continuous_batching_context_manager(
            generation_config=choosing, continuous_batching_config=settings
        ) as manager:
            start, processor_start = time.perf_counter(), time.process_time()
            ids = [
                manager.add_request(list(prompt), max_new_tokens=most, record_timestamps=True)
                for prompt, most in zip(work.prompts, work.max_tokens, strict=True)
            ]
            result_by_id = _wait_for(manager, len(ids))
            seconds, processor_seconds = time.perf_counter() - start, time.process_time() - processor_start
        results = [result_by_id[request_id] for request_id in ids]
        times = [[moment - start for moment in result.timestamps] for result in results]
        token_ids = [list(result.generated_tokens) for result in results]
        return Run(seconds, processor_seconds, token_ids, times, passes.count)

    yield run


def _wait_for(manager: Any, num_requests: int) -> dict[str, Any]:
    """Gives the result of every request, by its id.

    Raises:
        EngineError: The manager, which has a thread of its own, ended before.
    """
    result_by_id: dict[str, Any] = {}
    while len(result_by_id) < num_requests:
        result = manager.get_result(timeout=1)
        if result is not None and result.is_finished():
            result_by_id[result.request_id] = result
        elif result is None and not manager.is_running():
            message = f"the manager ended with {len(result_by_id)} of {num_requests} requests answered"
            raise EngineError(message, num_answered=len(result_by_id), num_requests=num_requests)
    return result_by_id


def _loaded(work: Workload) -> Any:
    model: Any = AutoModelForCausalLM.from_pretrained(work.folder, dtype=torch.float32).eval()
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0
    return model
