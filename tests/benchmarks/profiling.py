"""Where does the time of a run go? Processor time of one run, by what was called."""

import cProfile
import pstats
import time
from pathlib import Path
from typing import Any

import refinfer as package
from tests.benchmarks.drivers import refinfer
from tests.benchmarks.workloads import Workload

_PART_BY_OPERATION = {
    "linear": "products by weights",
    "_linear_pointwise": "products by weights",
    "scaled_dot_product_attention": "attention",
    "bmm": "attention",
    "softmax": "attention",
    "index_select": "reading blocks",
    "index_copy_": "writing blocks",
    "index_fill_": "filling with NaN",
}
"""Operations of torch that have a row of their own."""

OTHER_OPERATIONS = "other operations of torch"
MODULES = "torch's modules, in Python"
REST = "everything else"


def seconds_by_part(work: Workload, **options: Any) -> dict[str, float]:
    """Runs work once to warm up and once under Python's profiler; gives seconds of processor time, largest first.

    The profiler makes calls dearer than they are, so that parts of many small calls look larger than they are.

    Args:
        work: What is run.
        options: Those of `LLM`.
    """
    profile = cProfile.Profile(time.process_time)
    with refinfer(work, **options) as runner:
        runner()
        profile.runcall(runner)
    seconds: dict[str, float] = {}
    for function, row in _rows_of(profile).items():
        part = part_of(*function)
        seconds[part] = seconds.get(part, 0.0) + row[2]
    return dict(sorted(seconds.items(), key=lambda entry: -entry[1]))


def part_of(file: str, line: int, name: str) -> str:
    """Gives the part that a function belongs to, as the profiler names it."""
    if file == "~" and line == 0:  # how the profiler writes what is not in Python
        operation = name.removesuffix(">").split(".")[-1]
        for known, part in _PART_BY_OPERATION.items():
            if operation == known or f"'{known}' " in name:
                return part
        return OTHER_OPERATIONS if "torch" in name.lower() else REST
    path = Path(file)
    root = Path(package.__file__).parent
    if path.is_relative_to(root):
        return f"refinfer/{path.relative_to(root).parts[0]}, in Python"
    return MODULES if "torch" in path.parts else REST


def _rows_of(profile: cProfile.Profile) -> dict[tuple[str, int, str], tuple[int, int, float, float]]:
    stats = pstats.Stats(profile)
    rows: dict[tuple[str, int, str], tuple[int, int, float, float]] = {
        function: (row[0], row[1], row[2], row[3])
        for function, row in vars(stats)["stats"].items()  # its own printer reads them from there too
    }
    return rows
