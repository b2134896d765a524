"""Tells which mechanical mutants generated schedules see, without any unit test.

Reach for it when `mutmut run` has written its mutants, and you want to know what of a kill is the harness's own.

    PYTHONPATH=mutants python debug/mutants_by_schedules.py 'refinfer.scheduler.*' 'refinfer.cache.prefix*'
    PYTHONPATH=mutants python debug/mutants_by_schedules.py --schedules 200 --json seen.json 'refinfer.sampling.*'

Each mutant gets a process of its own and the same schedules: on the symbolic model, paged and continuous, with guesses
and without, and watched around every step. One that is still running after `--limit` seconds counts as hung, and one on
which a check itself raises an error as crashed.
"""

import argparse
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

from rich.console import Console

from oracle.choosers import RandomChooser
from oracle.commands.shared import output_file, positive
from oracle.errors import CheckFailed
from oracle.faults.schedule_hunt import SYMBOLIC_MODES, run_watched
from oracle.sampling_effects import observed_effects
from oracle.scenario import Scenario
from oracle.schedule_strategies import choose_symbolic_schedule
from oracle.symbolic import EOS_TOKEN_IDS
from oracle.symbolic_check import run_symbolic

UNSEEN, HUNG, CRASHED = "unseen", "hung", "crashed"
_CRASHED_STATUS = 255
MAX_SCHEDULES = 250
"""A process ends with the number of a schedule as its status, which is one byte, or with the one above."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the script and gives its exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("patterns", nargs="+", help="which mutants, as mutmut names them")
    parser.add_argument("--mutants", type=Path, default=Path("mutants"), help="where mutmut has written them")
    parser.add_argument("--schedules", type=positive, default=40, help="most for each mutant (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="where chance comes from (default: %(default)s)")
    parser.add_argument("--limit", type=positive, default=60, help="seconds for one mutant (default: %(default)s)")
    parser.add_argument("--json", type=output_file, help="write what was seen of each mutant there")
    options = parser.parse_args(arguments)
    if options.schedules > MAX_SCHEDULES:
        parser.error(f"--schedules {options.schedules} is more than {MAX_SCHEDULES}; take other ones with --seed")
    names = mutants_in(options.mutants, options.patterns)
    if not names:
        patterns = " ".join(options.patterns)
        parser.error(f"no mutant in {options.mutants} is named {patterns}; `mutmut run` writes them, see notes/mutants")
    choose = RandomChooser(options.seed)
    scenarios = [
        choose_symbolic_schedule(choose, is_speculative=number % 2 == 1) for number in range(options.schedules)
    ]
    seen = {name: outcome_of(name, scenarios, options.limit) for name in names}
    if options.json:
        options.json.write_text(json.dumps(seen, indent=1) + "\n", encoding="utf-8")
    counts = Counter("caught" if isinstance(outcome, int) else outcome for outcome in seen.values())
    Console().print(f"{len(seen)} mutants, {len(scenarios)} schedules each: {dict(sorted(counts.items()))}")
    return 0


def mutants_in(folder: Path, patterns: Sequence[str]) -> list[str]:
    """Gives the names of the mutants that mutmut has written and that a pattern asks for."""
    names = [
        name
        for file in sorted(folder.rglob("*.py.meta"))
        for name in json.loads(file.read_text(encoding="utf-8"))["exit_code_by_key"]
    ]
    return [name for name in names if any(fnmatch(name, pattern) for pattern in patterns)]


def outcome_of(name: str, scenarios: Sequence[Scenario], limit: int) -> int | str:
    """Gives the number of the first schedule that fails on a mutant, or "unseen", "hung" or "crashed"."""
    child = os.fork()
    if child == 0:
        status = _CRASHED_STATUS
        try:
            signal.alarm(limit)
            os.environ["MUTANT_UNDER_TEST"] = name
            status = first_that_fails(scenarios)
        finally:
            os._exit(status)
    _, how = os.waitpid(child, 0)
    if os.WIFSIGNALED(how):
        return HUNG
    status = os.WEXITSTATUS(how)
    return CRASHED if status == _CRASHED_STATUS else status or UNSEEN


def first_that_fails(scenarios: Sequence[Scenario]) -> int:
    """Gives the number of the first schedule that fails, counted from 1; 0 where none does."""
    for number, scenario in enumerate(scenarios, start=1):
        try:
            for mode in SYMBOLIC_MODES:
                observed_effects(scenario, run_symbolic(scenario, mode), EOS_TOKEN_IDS)
            run_watched(scenario)
        except CheckFailed:
            return number
    return 0


if __name__ == "__main__":
    sys.exit(main())
