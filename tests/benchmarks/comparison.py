"""Engines side by side on the same work, each with one turn in every round: so a noisy machine is noisy for all."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from oracle.report import environment
from tests.benchmarks.drivers import Opened, Run
from tests.benchmarks.workloads import Workload

Opener = Callable[[Workload], Opened]
"""Loads an engine for a piece of work."""


@dataclass
class Entry:
    """What one engine did.

    Attributes:
        name: How the table names it.
        runs: One for each round, the warm-up left out.
        loads: The machine's load average before each of them, of one minute.
        num_equal: Requests whose tokens are those of the first engine, in the round in which the fewest were.
    """

    name: str
    runs: list[Run] = field(default_factory=list)
    loads: list[float] = field(default_factory=list)
    num_equal: int | None = None

    @property
    def best(self) -> Run:
        """The shortest run: what else the machine did made it longer least."""
        return min(self.runs, key=lambda run: run.seconds)

    def as_json(self) -> dict[str, Any]:
        """Gives the figures of the shortest run, and the seconds of all."""
        best = self.best
        return {
            "name": self.name,
            "seconds": [run.seconds for run in self.runs],
            "processor_seconds": [run.processor_seconds for run in self.runs],
            "load": self.loads,
            "throughput": best.throughput,
            "mean_ttft": best.mean_ttft,
            "mean_itl": best.mean_itl,
            "max_itl": max(best.gaps, default=None),
            "num_passes": best.num_passes,
            "kv_use": best.kv_use,
            "num_equal": self.num_equal,
        }


def compare(
    work: Workload,
    openers: Mapping[str, Opener],
    rounds: int = 3,
    on_turn: Callable[[str], None] = lambda _: None,
) -> list[Entry]:
    """Runs the work on every engine, in turns, after a round that is not counted.

    Args:
        work: What they do.
        openers: The engines by name; the first is the one with whose tokens the others are compared.
        rounds: How many turns each has.
        on_turn: Called with an engine's name before its turn.
    """
    entries = [Entry(name) for name in openers]
    with ExitStack() as stack:
        runners = [stack.enter_context(opener(work)) for opener in openers.values()]
        for turn in range(rounds + 1):
            for entry, runner in zip(entries, runners, strict=True):
                on_turn(entry.name)
                load = os.getloadavg()[0]
                run = runner()
                if turn:
                    entry.runs.append(run)
                    entry.loads.append(load)
    expected = entries[0].runs[0].token_ids
    for entry in entries:
        entry.num_equal = min(_num_equal(run.token_ids, expected) for run in entry.runs)
    return entries


def report_of(work: Workload, entries: Sequence[Entry]) -> dict[str, Any]:
    """Gives a comparison as plain data, with what the figures depend on."""
    return {
        "workload": work.name,
        "num_requests": len(work.prompts),
        "num_prompt_tokens": sum(map(len, work.prompts)),
        "num_output_tokens": work.num_output_tokens,
        "date": time.strftime("%Y-%m-%d"),
        "environment": {**environment(), "cores": os.cpu_count()},
        "engines": [entry.as_json() for entry in entries],
    }


def _num_equal(token_ids: Sequence[Sequence[int]], expected: Sequence[Sequence[int]]) -> int:
    return sum(list(own) == list(theirs) for own, theirs in zip(token_ids, expected, strict=True))
