"""Tells how full reserved key and value places are, paged and static: used over reserved, summed over all steps.

Reach for it when you have changed how blocks are reserved, or when a batch holds fewer requests than it should.

    python debug/occupancy.py
    python debug/occupancy.py --block-size 32 --requests 16

The work is W1: the requests of `debug/w1.json`, 16 at a time, on runners without a model, since what is reserved
does not depend on logits. The pool has no block more than were held at the fullest moment between two steps.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from oracle.chain_runner import VOCAB_SIZE, ChainRunner
from oracle.commands.shared import positive
from refinfer.cache.block_table import BlockTable
from refinfer.engine.core import EngineCore
from refinfer.engine.engine import make_states
from refinfer.engine.statistics import EngineStats
from refinfer.model.model_input import RowLogits
from refinfer.sampling import SamplingParams
from refinfer.scheduler import BlockSpace, ContinuousScheduler, Request, RequestQueues, ScheduledRow, StaticScheduler

WORKLOAD = Path(__file__).parent / "w1.json"
MAX_NUM_SEQS = 16


class Occupancy(NamedTuple):
    """What came of one run.

    Attributes:
        num_blocks: Most blocks that were held between two steps; 0 without a pool.
        stats: The engine's own numbers.
    """

    num_blocks: int
    stats: EngineStats

    @property
    def share(self) -> float:
        """Places in use over places reserved, summed over all steps."""
        return self.stats.used_slots / self.stats.reserved_slots


class RectangleRunner(ChainRunner):
    """Reserves what a static cache does: for each row the longest prompt and the longest answer of its batch."""

    _num_slots = 0

    @property
    def num_reserved_slots(self) -> int:
        """Columns of the rectangle, in all rows."""
        return self._num_slots

    def execute(self, rows: Sequence[ScheduledRow]) -> list[RowLogits]:
        """Runs the rows, and notes how large their rectangle is."""
        longest_prompt = max(row.state.num_prompt_tokens for row in rows)
        longest_answer = max(row.state.request.params.max_tokens or 0 for row in rows)
        self._num_slots = len(rows) * (longest_prompt + longest_answer - 1)
        return super().execute(rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the script and gives its exit status."""
    options = _parser().parse_args(arguments)
    console = Console()
    requests = read_workload(options.requests)
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("W1", total=None)
        paged = run_paged(requests, options.block_size)
        progress.advance(task)
        static = run_static(requests)
    table = Table(
        title=f"W1: {len(requests)} requests, {MAX_NUM_SEQS} at a time, blocks of {options.block_size}",
        title_justify="left",
    )
    for column in ("cache", "blocks", "steps", "preemptions", "used", "reserved", "share"):
        table.add_column(column)
    for name, found in (("paged", paged), ("static", static)):
        stats = found.stats
        counts = (found.num_blocks, stats.num_steps, stats.num_preemptions, stats.used_slots, stats.reserved_slots)
        table.add_row(name, *map(str, counts), f"{found.share:.2%}")
    console.print(table)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--block-size", type=positive, default=16, help="token places of a block (default: %(default)s)"
    )
    parser.add_argument("--requests", type=positive, help="only so many of W1's requests")
    return parser


def read_workload(num_requests: int | None = None) -> list[Request]:
    """Gives the requests of W1, their token ids folded into the small vocabulary."""
    entries = json.loads(WORKLOAD.read_text(encoding="utf-8"))["requests"][:num_requests]
    return [
        Request(
            str(index),
            None,
            tuple(token_id % VOCAB_SIZE for token_id in entry["prompt_token_ids"]),
            SamplingParams(max_tokens=entry["max_tokens"], ignore_eos=True),
        )
        for index, entry in enumerate(entries)
    ]


def run_paged(requests: Sequence[Request], block_size: int) -> Occupancy:
    """Runs requests over a pool of just as many blocks as a run with plenty held at its fullest between two steps."""
    most = sum(BlockTable.blocks_for(_longest([request]), block_size) for request in requests)
    scheduler, runner = _paged(most, block_size)
    num_blocks = _run(requests, scheduler, runner).num_blocks
    return _run(requests, *_paged(num_blocks, block_size))


def run_static(requests: Sequence[Request]) -> Occupancy:
    """Runs requests in batches whose members stay together."""
    return _run(requests, StaticScheduler(MAX_NUM_SEQS), RectangleRunner())


def _paged(num_blocks: int, block_size: int) -> tuple[RequestQueues, ChainRunner]:
    # Without prefix caching, so that no place is counted for two requests
    space = BlockSpace(num_blocks, block_size, enable_prefix_caching=False)
    return ContinuousScheduler(MAX_NUM_SEQS, 256, blocks=space), ChainRunner(num_blocks, block_size)


def _run(requests: Sequence[Request], scheduler: RequestQueues, runner: ChainRunner) -> Occupancy:
    """Runs requests to their end; gives the most blocks that were held, and the numbers."""
    core = EngineCore(scheduler, runner, eos_token_ids=frozenset(), max_model_len=_longest(requests))
    for request in requests:
        for state in make_states(request):
            core.add(state)
    most = 0
    while core.has_unfinished_requests():
        core.step()
        most = max(most, core.stats().num_used_blocks)
    return Occupancy(most, core.stats())


def _longest(requests: Sequence[Request]) -> int:
    return max(len(request.prompt_token_ids) + (request.params.max_tokens or 0) for request in requests)


if __name__ == "__main__":
    sys.exit(main())
