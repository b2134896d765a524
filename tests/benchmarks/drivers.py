"""One engine, one piece of work, one run: what came out, and when.

All requests arrive at once, when the clock starts. Time to first token counts from there, so it includes waiting.
Loading is not timed: a driver is opened first, and then runs the work as often as it is asked to.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from itertools import pairwise
from statistics import fmean
from typing import Any

import torch

from refinfer import LLM, SamplingParams
from tests.benchmarks.workloads import Workload


@dataclass(frozen=True)
class Run:
    """What one run gave.

    Attributes:
        seconds: From the arrival of all requests to the last token.
        processor_seconds: What the engine's process used of all cores meanwhile; on a busy machine it tells more than
            `seconds`, as long as there is one thread, for several use it up waiting for each other.
        token_ids: What each request emitted.
        times: For each request, when each of its tokens came, in seconds; None where the engine does not say.
        num_passes: Passes of the model; None where the engine does not say.
        kv_use: Token places that held a computed token over those that were reserved, summed over all steps;
            None where the engine does not say.
    """

    seconds: float
    processor_seconds: float
    token_ids: list[list[int]]
    times: list[list[float]] | None = None
    num_passes: int | None = None
    kv_use: float | None = None

    @property
    def throughput(self) -> float:
        """Output tokens per second."""
        return sum(map(len, self.token_ids)) / self.seconds

    @property
    def mean_ttft(self) -> float | None:
        """Seconds to the first token, mean of all requests."""
        return None if self.times is None else fmean(own[0] for own in self.times)

    @property
    def gaps(self) -> list[float]:
        """Seconds between two tokens of one request, over all requests; none where the engine does not say."""
        return [later - earlier for own in self.times or [] for earlier, later in pairwise(own)]

    @property
    def mean_itl(self) -> float | None:
        """Seconds between two tokens of one request, mean of all."""
        return fmean(self.gaps) if self.gaps else None

    def as_json(self) -> dict[str, Any]:
        """Gives all of it as plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Run":
        """Takes what `as_json` gave."""
        return cls(**data)


Runner = Callable[[], Run]
"""Runs the work once more, from the start."""

Opened = AbstractContextManager[Runner]
"""An engine that is loaded for a piece of work, as long as the context is open."""


@contextmanager
def refinfer(work: Workload, **options: Any) -> Iterator[Runner]:
    """This project's own engine; `options` are those of `LLM`."""
    llm = LLM(work.folder, **options)
    params = [SamplingParams(temperature=0.0, max_tokens=most, ignore_eos=True) for most in work.max_tokens]

    def run() -> Run:
        engine = llm.engine
        engine.core = engine.new_core()  # empty caches, also of prefixes
        start, processor_start = time.perf_counter(), time.process_time()
        for index, (prompt, own) in enumerate(zip(work.prompts, params, strict=True)):
            engine.add_request(str(index), list(prompt), own)
        token_ids: list[list[int]] = [[] for _ in work.prompts]
        times: list[list[float]] = [[] for _ in work.prompts]
        while engine.has_unfinished_requests():
            outputs = engine.step()
            now = time.perf_counter() - start
            for output in outputs:
                index = int(output.request_id)
                token_ids[index] = output.outputs[0].token_ids
                times[index] += [now] * (len(token_ids[index]) - len(times[index]))
        seconds = time.perf_counter() - start
        processor_seconds = time.process_time() - processor_start
        stats = engine.stats()
        kv_use = stats.used_slots / stats.reserved_slots if stats.reserved_slots else None
        return Run(seconds, processor_seconds, token_ids, times, stats.num_steps, kv_use)

    yield run


def batches_of(work: Workload, size: int) -> Iterator[tuple[list[list[int]], list[int]]]:
    """Cuts work into batches, in order: the prompts, and how many tokens each of them emits."""
    for start in range(0, len(work.prompts), size):
        chosen = slice(start, start + size)
        yield [list(prompt) for prompt in work.prompts[chosen]], list(work.max_tokens[chosen])


def left_padded(prompts: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Lays prompts out as a rectangle that is padded on the left; gives the ids and the mask of what is no padding."""
    width = max(map(len, prompts))
    ids = [[0] * (width - len(prompt)) + list(prompt) for prompt in prompts]
    mask = [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts]
    return torch.tensor(ids), torch.tensor(mask)
