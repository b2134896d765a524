"""Which pictures does a report become?"""

from collections.abc import Sequence
from typing import Any

from tests.benchmarks.charts import Axis, bars, curves

_AXIS_BY_CHART = {
    "waiting": Axis("requests that wait", is_logarithmic=True),
    "running": Axis("requests that run"),
    "context": Axis("tokens before each one that runs"),
    "pool": Axis("blocks of the pool", is_logarithmic=True),
}


def pictures_of(reports: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Draws reports; gives pictures by the names of their files, without an ending."""
    pictures: dict[str, str] = {}
    for report in reports:
        if report["kind"] == "growth":
            for chart, points_by_name in report["charts"].items():
                pictures[f"growth-{chart}"] = _growth(chart, points_by_name)
        elif report["kind"] in ("peers", "modes", "prefix"):
            values = {entry["name"]: entry["throughput"] for entry in report["engines"]}
            name = f"{report['kind']}-{report['workload'].lower()}"
            pictures[name] = bars(f"{report['workload']}: throughput", "output tokens per second", values)
    uneven = [report for report in reports if report["kind"] == "uneven"]
    if uneven:
        pictures["uneven"] = _uneven(uneven)
    return pictures


def _growth(chart: str, points_by_name: dict[str, list[list[float]]]) -> str:
    is_scheduling = chart == "waiting"
    factor, unit = (1e6, "microseconds") if is_scheduling else (1e3, "milliseconds")
    title = "Scheduling one step, 16 requests run" if is_scheduling else "One step of the paged engine"
    scaled = {name: [[place, factor * value] for place, value in points] for name, points in points_by_name.items()}
    return curves(title, _AXIS_BY_CHART[chart], Axis(unit), scaled)


def _uneven(reports: Sequence[dict[str, Any]]) -> str:
    steps = {
        f"{report['workload']}, {entry['name']}": float(entry["num_steps"])
        for report in reports
        for entry in report["engines"]
    }
    return bars("Steps for as many tokens, answers of uneven lengths", "steps", steps)
