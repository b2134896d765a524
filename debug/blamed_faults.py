"""Plants bugs one after another, explains the first case that each fails, and says whether the right place is blamed.

Reach for it when something of `oracle/explain` was changed: it tells how often the verdict names the file in which
the bug sits.

    python debug/blamed_faults.py norm_epsilon copy_on_write_left_out
    python debug/blamed_faults.py
"""

import argparse
import sys
import time
from collections.abc import Sequence

import torch
from rich.console import Console

from oracle.check import CheckSettings
from oracle.errors import FaultNotCaught, OracleError
from oracle.explain.explain_scenario import explain_scenario
from oracle.explain.explanation import Explanation
from oracle.explain.failing_check import Checks, FailingCheck
from oracle.faults import FAULTS, LAW_FAULTS, SCHEDULE_FAULTS, Fault
from oracle.faults.hunt import hunt
from oracle.faults.schedule_hunt import hunt_schedules
from oracle.scenario import Scenario
from oracle.schedule_shrinker import shrink
from oracle.strategies import scenarios
from oracle.subjects import MODES

NUM_CASES = 120
"""Cases in which a fault is looked for; of schedules ten times as many."""

SHRINK_SECONDS = 6.0
MIN_HITS = 0.9
"""The share of faults for which the file must be named."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the script and gives its exit status."""
    parser = argparse.ArgumentParser(description="Says whether the place of planted bugs is blamed.")
    parser.add_argument("faults", nargs="*", metavar="NAME", help="which (default: all that a case can show)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    console = Console(soft_wrap=True, highlight=False, markup=False)
    names = options.faults or [name for name in FAULTS if name not in LAW_FAULTS]
    hits = []
    for name in names:
        fault = FAULTS[name]
        start = time.monotonic()
        try:
            case = failing_case(fault, options.seed)
        except FaultNotCaught as error:
            console.print(f"{name}: {error}")
            continue
        with fault.planted():
            try:
                found = explain_scenario(case)
            except OracleError as error:
                console.print(f"{name}: MISS: {type(error).__name__}: {error}")
                hits.append(False)
                continue
        hits.append(is_named(fault, found))
        verdict = "hit" if hits[-1] else "MISS"
        seconds = f"{found.seconds:.1f} s of {time.monotonic() - start:.0f} s"
        console.print(f"{name} ({fault.area}): {verdict} in {seconds}; {found.check} × {found.subject}")
        console.print(f"  sits in {', '.join(sorted(fault.sources))}; blamed: {', '.join(found.blame.sources)}")
        console.print(f"  {found.blame.sentence}")
    console.print(f"{sum(hits)} of {len(hits)} named")
    return 0 if sum(hits) >= MIN_HITS * len(hits) else 1


def failing_case(fault: Fault, seed: int) -> Scenario:
    """Gives a small case that a planted fault fails.

    Raises:
        FaultNotCaught: None was found.
    """
    if fault.name in SCHEDULE_FAULTS:
        scenario = hunt_schedules(fault, num_schedules=10 * NUM_CASES, seed=seed).scenario
    else:
        settings = CheckSettings(
            modes=MODES,
            strategy=scenarios(),
            folder=None,
            num_examples=NUM_CASES,
            seed=seed,
            shrink=False,
            stop_at_failure=True,
        )
        found = hunt(fault, settings).scenario
        if found is None:
            message = f"fault {fault.name} shows in the whole run only"
            raise FaultNotCaught(message, fault=fault.name)
        scenario = found
    with fault.planted():
        checks = Checks()
        figures = checks.run_all(scenario, deadline=0.0)
        failing = next((figure for figure in figures if figure.verdict == "fail"), None)
        if failing is None:
            message = f"fault {fault.name} fails no check of its own case"
            raise FaultNotCaught(message, fault=fault.name)
        check = FailingCheck(failing.name, failing.mode, "")
        deadline = time.monotonic() + SHRINK_SECONDS
        return shrink(scenario, lambda smaller: checks.fails(smaller, check), deadline=deadline)


def is_named(fault: Fault, found: Explanation) -> bool:
    """Tells whether one of those files is blamed."""
    return not set(fault.sources).isdisjoint(found.blame.sources)


if __name__ == "__main__":
    sys.exit(main())
