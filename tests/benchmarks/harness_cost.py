"""What does the harness itself cost: schedules per second, and seconds for each property?"""

import time
from collections.abc import Callable, Sequence

from oracle.check import Checker, CheckSettings
from oracle.choosers import RandomChooser
from oracle.properties import PROPERTIES, Property
from oracle.schedule_properties import CHECKPOINTS, ModelRuns
from oracle.schedule_run import ModeReport, run_schedules
from oracle.schedule_strategies import choose_model_schedule, choose_symbolic_schedule
from oracle.strategies import scenarios
from oracle.subjects import MODES
from oracle.symbolic_check import run_with_effects


def schedules_per_second(num_symbolic: int, num_model: int, seed: int = 0) -> dict[str, float]:
    """Runs schedules on the symbolic model and on tiny real ones; gives for each mode how many a second took."""
    choose = RandomChooser(seed)
    symbolic = run_schedules(
        (choose_symbolic_schedule(choose) for _ in range(num_symbolic)), run_with_effects, ("paged", "continuous")
    )
    choose = RandomChooser(seed)
    models = run_schedules(
        (choose_model_schedule(choose, CHECKPOINTS, batch_invariant=True) for _ in range(num_model)),
        ModelRuns().run,
        MODES,
    )
    return {
        **{f"symbolic, {report.mode}": _rate(report) for report in symbolic},
        **{f"model, {report.mode}": _rate(report) for report in models},
    }


def _rate(report: ModeReport) -> float:
    return report.table.num_schedules / report.seconds


def seconds_per_property(
    num_cases: int,
    properties: Sequence[Property] = PROPERTIES,
    seed: int = 0,
    on_property: Callable[[str], None] = lambda _: None,
) -> dict[str, float]:
    """Checks each property by itself in all its modes; gives the seconds of one case, the mean of so many.

    Cases are drawn anew for each property, in the dtypes that it is about, and their checkpoints are made with them.
    """
    seconds_by_name = {}
    for prop in properties:
        on_property(prop.name)
        settings = CheckSettings(
            modes=MODES,
            strategy=scenarios(prop.dtypes),
            folder=None,
            num_examples=num_cases,
            seed=seed,
            properties=(prop,),
            shrink=False,
        )
        checker = Checker(settings)
        start = time.perf_counter()
        checker.run()
        seconds_by_name[prop.name] = (time.perf_counter() - start) / checker.num_cases
    return seconds_by_name
