"""How does the time of a step grow: with requests that wait or run, with their length, with the pool?"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

from refinfer import LLM, SamplingParams
from refinfer.cache.block_table import BlockTable
from refinfer.scheduler import BlockSpace, ContinuousScheduler, Request, RequestState

BLOCK_SIZE = 16
NUM_RUNNING = 16
NUM_TOKENS = 64
"""Tokens of the prompt of each request that runs while scheduling is timed."""

NUMS_WAITING = (0, 10, 100, 1000, 10_000)
NUMS_RUNNING = (1, 2, 4, 8, 16, 32)
CONTEXTS = (64, 128, 256, 512, 1024)
NUMS_BLOCKS = (1024, 2048, 4096, 8192)
_CHARTS = (
    ("running", "num_running", NUMS_RUNNING),
    ("context", "context", CONTEXTS),
    ("pool", "num_blocks", NUMS_BLOCKS),
)
"""Charts of steps of a model: what each is called, and which argument of `step_seconds` takes which values."""

_VOCAB_SIZE = 4096


@dataclass(frozen=True)
class Queue:
    """A way for requests to wait.

    Attributes:
        name: How charts name it.
        is_prefill_first: The order of the scheduler.
        has_seats: Whether one more request could run, if only there were blocks for it.
        enable_prefix_caching: Whether the first of those that wait is looked up in the prefix map.
    """

    name: str
    is_prefill_first: bool = False
    has_seats: bool = False
    enable_prefix_caching: bool = True


QUEUES = (
    Queue("all seats taken"),
    Queue("all seats taken, prefill first", is_prefill_first=True),
    Queue("no blocks left", has_seats=True),
    Queue("no blocks left, no prefix caching", has_seats=True, enable_prefix_caching=False),
)


def scheduling_seconds(queue: Queue, num_waiting: int, num_steps: int = 200) -> float:
    """Gives the median time in which one step is scheduled and its tokens become part of their requests.

    No model runs: each of `NUM_RUNNING` requests emits a token in every step, while the others wait.
    """
    scheduler = _crowded_scheduler(queue, num_waiting, num_steps)
    timed = []
    for _ in range(num_steps):
        start = time.perf_counter()
        output = scheduler.schedule()
        timed.append(time.perf_counter() - start)
        for row in output.rows:
            row.state.append(_next_token(row.state))
        start = time.perf_counter()
        scheduler.advance(output.rows)
        timed[-1] += time.perf_counter() - start
    return median(timed)


def _crowded_scheduler(queue: Queue, num_waiting: int, num_steps: int) -> ContinuousScheduler:
    longest = NUM_TOKENS + num_steps + 1
    num_blocks = NUM_RUNNING * BlockTable.blocks_for(longest, BLOCK_SIZE)
    space = BlockSpace(num_blocks, BLOCK_SIZE, enable_prefix_caching=queue.enable_prefix_caching)
    scheduler = ContinuousScheduler(
        NUM_RUNNING + queue.has_seats,
        NUM_RUNNING * NUM_TOKENS + 1,
        blocks=space,
        is_prefill_first=queue.is_prefill_first,
    )
    ids = count()
    for _ in range(NUM_RUNNING):
        scheduler.add(_state(next(ids), NUM_TOKENS))
    output = scheduler.schedule()
    for row in output.rows:
        row.state.append(_next_token(row.state))
    scheduler.advance(output.rows)
    # So long that they would find no room, though all blocks but those of the running prompts were free
    for _ in range(num_waiting):
        scheduler.add(_state(next(ids), num_blocks * BLOCK_SIZE))
    return scheduler


def _state(number: int, num_tokens: int) -> RequestState:
    prompt = tuple((number * 7919 + place) % _VOCAB_SIZE for place in range(num_tokens))
    return RequestState(Request(str(number), None, prompt, SamplingParams(ignore_eos=True)))


def _next_token(state: RequestState) -> int:
    return (state.num_tokens * 31 + int(state.request.request_id)) % _VOCAB_SIZE


def step_seconds(
    folder: Path, *, num_running: int = 8, context: int = 128, num_steps: int = 12, **options: Any
) -> float:
    """Gives the shortest time of a step in which so many requests decode, each with so many tokens before."""
    options = {"enable_prefix_caching": False, "max_num_batched_tokens": 1024, **options}
    llm = LLM(folder, max_num_seqs=num_running, max_model_len=context + num_steps + 3, **options)
    params = SamplingParams(temperature=0.0, max_tokens=num_steps + 2, ignore_eos=True)
    engine = llm.engine
    vocab_size = llm.model.config.vocab_size
    for number in range(num_running):
        prompt = [(number * 7919 + 17 * place) % vocab_size for place in range(context)]
        engine.add_request(str(number), prompt, params)
    while engine.stats().num_emitted_tokens < num_running:
        engine.step()
    engine.step()
    timed = []
    for _ in range(num_steps // 2):
        start = time.perf_counter()
        engine.step()
        timed.append(time.perf_counter() - start)
    return min(timed)


def measured(folder: Path, on_point: Callable[[str], None] = lambda _: None) -> dict[str, dict[str, list[list[float]]]]:
    """Measures every curve: for each chart its curves by name, each a list of places and seconds."""
    charts: dict[str, dict[str, list[list[float]]]] = {}
    for chart, curve, place, seconds in _points(folder):
        on_point(f"{chart}: {curve} at {place}")
        charts.setdefault(chart, {}).setdefault(curve, []).append([place, seconds()])
    return charts


def _points(folder: Path) -> Iterator[tuple[str, str, int, Callable[[], float]]]:
    for queue in QUEUES:
        for num_waiting in NUMS_WAITING:
            yield "waiting", queue.name, num_waiting, partial(scheduling_seconds, queue, num_waiting)
    # Both manners at each place before the next place, so that a noisy minute falls on both
    steps = {name: partial(step_seconds, folder, batch_invariant=name == "exact") for name in ("exact", "plain")}
    for chart, option, places in _CHARTS:
        for place in places:
            for name, step in steps.items():
                yield chart, name, place, partial(step, **{option: place})
