"""Lets requests come, run, fail and be aborted at random for a long time, and tells whether memory stays flat.

Reach for it when you have changed what the scheduler, the blocks or the engine keep of a request.

    python debug/soak.py
    python debug/soak.py --steps 20000 --seed 7

It runs over a pool that is too small, on a runner without a model that checks what every slot holds. After every
hundredth step all invariants are checked; at the end nothing may be left of any request.
"""

import argparse
import gc
import random
import sys
import tracemalloc
from collections.abc import Sequence
from typing import NamedTuple

from rich.console import Console
from rich.progress import Progress

from oracle.chain_runner import ChainRunner
from oracle.errors import InvariantViolation
from oracle.invariants import check_core, check_drained
from refinfer.engine.core import EngineCore
from refinfer.engine.engine import make_states
from refinfer.sampling import SamplingParams
from refinfer.scheduler import BlockSpace, ContinuousScheduler, Request

MAX_MODEL_LEN = 24
NUM_BLOCKS = 14
BLOCK_SIZE = 3
MAX_GROWTH = 100_000
"""Bytes that may be allocated more at the end than after a tenth of the steps; a request that is kept takes 2000."""


class Soaked(NamedTuple):
    """What came of it.

    Attributes:
        num_requests: Requests that came.
        num_preemptions: How often blocks were taken back.
        num_growth_bytes: Bytes allocated at the end beyond those after a tenth of the steps.
    """

    num_requests: int
    num_preemptions: int
    num_growth_bytes: int


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the script and gives its exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200_000, help="how many (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="where chance comes from (default: %(default)s)")
    options = parser.parse_args(arguments)
    console = Console()
    with Progress(console=console, transient=True) as progress:
        try:
            found = soak(options.steps, options.seed, progress)
        except InvariantViolation as error:
            console.print(f"error: {error}", style="red", markup=False)
            return 1
    console.print(
        f"{options.steps} steps, {found.num_requests} requests, {found.num_preemptions} preemptions; "
        f"memory grew by {found.num_growth_bytes} bytes, of {MAX_GROWTH} allowed",
        highlight=False,
    )
    return int(found.num_growth_bytes > MAX_GROWTH)


def soak(num_steps: int, seed: int, progress: Progress) -> Soaked:
    """Runs so many steps, with arrivals and aborts drawn from a seed.

    Raises:
        InvariantViolation: A state that is not sound, or a slot that holds the wrong token.
    """
    chance = random.Random(seed)  # noqa: S311 - nothing secret
    space = BlockSpace(NUM_BLOCKS, BLOCK_SIZE, num_swap_blocks=NUM_BLOCKS // 2)
    scheduler = ContinuousScheduler(5, 16, blocks=space, preempts_by_swap=True)
    core = EngineCore(
        scheduler, ChainRunner(NUM_BLOCKS, BLOCK_SIZE), eos_token_ids=frozenset({7}), max_model_len=MAX_MODEL_LEN
    )
    num_requests = num_bytes = 0
    tracemalloc.start()
    try:
        for step in progress.track(range(num_steps), description="soak"):
            if len(core.answers) < 8 and chance.random() < 0.5:
                _add(core, chance, str(num_requests))
                num_requests += 1
            if core.answers and chance.random() < 0.05:
                core.abort(chance.choice(list(core.answers)))
            core.step()
            if step % 100 == 0:
                check_core(core)
            if step == num_steps // 10:
                num_bytes = _allocated()
        while core.has_unfinished_requests():
            core.step()
        check_drained(core)
        return Soaked(num_requests, core.stats().num_preemptions, _allocated() - num_bytes)
    finally:
        tracemalloc.stop()


def _add(core: EngineCore, chance: random.Random, name: str) -> None:
    prompt = tuple(chance.randrange(2) for _ in range(chance.randint(1, MAX_MODEL_LEN - 1)))
    params = SamplingParams(
        n=chance.choice((1, 1, 2)),
        max_tokens=chance.randint(1, 12),
        temperature=chance.choice((0.0, 1.0)),
        prompt_logprobs=chance.choice((None, None, 1)),
    )
    for state in make_states(Request(name, None, prompt, params, seed=chance.getrandbits(32))):
        core.add(state)


def _allocated() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


if __name__ == "__main__":
    sys.exit(main())
