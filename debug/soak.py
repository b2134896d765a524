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
from collections.abc import Sequence
from typing import NamedTuple

from rich.console import Console
from rich.progress import Progress

from oracle.chain_runner import ChainRunner
from oracle.commands.shared import positive
from oracle.errors import InvariantViolation
from oracle.invariants import check_core, check_drained
from refinfer.engine.core import EngineCore
from refinfer.engine.engine import make_states
from refinfer.sampling import SamplingParams
from refinfer.scheduler import BlockSpace, ContinuousScheduler, Request

MAX_MODEL_LEN = 24
NUM_BLOCKS = 14
BLOCK_SIZE = 3
MAX_STEPS_TO_DRAIN = 2_000
"""After the last arrival; requests that have not ended by then never will, for want of blocks that were lost."""

MAX_UNFINISHED = 8
ARRIVAL_RATE, ABORT_RATE = 0.5, 0.05
MAX_GROWTH = 3000
"""Objects that may be allocated more at the end than after half of the steps; a request that is kept takes dozens."""


class Soaked(NamedTuple):
    """What came of it.

    Attributes:
        num_requests: Requests that came.
        num_preemptions: How often blocks were taken back.
        growth: Objects allocated at the end beyond those after half of the steps.
    """

    num_requests: int
    num_preemptions: int
    growth: int


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the script and gives its exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=positive, default=200_000, help="how many (default: %(default)s)")
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
        f"{found.growth} objects more than after half of the steps, of {MAX_GROWTH} allowed",
        highlight=False,
    )
    return int(found.growth > MAX_GROWTH)


def soak(num_steps: int, seed: int, progress: Progress) -> Soaked:
    """Runs so many steps, with arrivals and aborts drawn from a seed.

    Raises:
        InvariantViolation: A state that is not sound, or a slot that holds the wrong token.
    """
    chance = random.Random(seed)
    space = BlockSpace(NUM_BLOCKS, BLOCK_SIZE, num_swap_blocks=NUM_BLOCKS // 2)
    scheduler = ContinuousScheduler(5, 16, blocks=space, preempts_by_swap=True)
    core = EngineCore(
        scheduler, ChainRunner(NUM_BLOCKS, BLOCK_SIZE), eos_token_ids=frozenset({7}), max_model_len=MAX_MODEL_LEN
    )
    num_requests = num_objects = 0
    for step in progress.track(range(num_steps), description="soak"):
        if len(core.answers) < MAX_UNFINISHED and chance.random() < ARRIVAL_RATE:
            _add(core, chance, str(num_requests))
            num_requests += 1
        if core.answers and chance.random() < ABORT_RATE:
            core.abort(chance.choice(list(core.answers)))
        core.step()
        if step % 100 == 0:
            check_core(core)
        if step == num_steps // 2:
            num_objects = _allocated(core)
    for _ in range(MAX_STEPS_TO_DRAIN):
        if not core.has_unfinished_requests():
            break
        core.step()
    check_drained(core)
    return Soaked(num_requests, core.stats().num_preemptions, _allocated(core) - num_objects)


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


def _allocated(core: EngineCore) -> int:
    core.events.clear()  # the log of the latest steps, which is bounded and long in filling
    gc.collect()
    return sys.getallocatedblocks()


if __name__ == "__main__":
    sys.exit(main())
