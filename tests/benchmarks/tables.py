"""Tables of what was measured, for a terminal."""

from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

COLUMNS = {
    "wall s": lambda entry: f"{min(entry['seconds']):.2f}",
    "cpu s": lambda entry: f"{min(entry['processor_seconds']):.2f}",
    "tok/s": lambda entry: f"{entry['throughput']:.0f}",
    "TTFT s": lambda entry: figure(entry["mean_ttft"], "{:.3f}"),
    "ITL ms": lambda entry: figure(entry["mean_itl"], "{:.1f}", 1000),
    "passes": lambda entry: figure(entry["num_passes"], "{:d}"),
    "KV use": lambda entry: figure(entry["kv_use"], "{:.0%}"),
}
"""Columns of a comparison, behind the engine's name and before how many requests have the first engine's tokens."""


def show(console: Console, report: dict[str, Any]) -> None:
    """Prints one report."""
    for table in tables_of(report):
        console.print(table)


def tables_of(report: dict[str, Any]) -> list[Table]:
    """Lays one report out as tables."""
    if report["kind"] == "growth":
        return [_of_chart(name, curves) for name, curves in report["charts"].items()]
    if report["kind"] == "harness":
        return [
            _of_pairs("schedules per second", report["schedules_per_second"]),
            _of_pairs("seconds of one case", report["seconds"]),
        ]
    if report["kind"] == "damage":
        return [_of_damage(report)]
    if report["kind"] == "profile":
        return [_of_parts(report)]
    return [_of_engines(report)]


def figure(value: float | None, form: str, factor: float = 1) -> str:
    """Writes a figure, or a dash where there is none."""
    return "-" if value is None else form.format(value * factor)


def _of_engines(report: dict[str, Any]) -> Table:
    table = _table(f"{report['workload']}: {report['num_requests']} requests, {report['num_output_tokens']} tokens")
    has_steps = "share" in report["engines"][0]
    table.add_column("engine")
    for column in (*COLUMNS, "equal", *(("steps", "emitting") if has_steps else ())):
        table.add_column(column, no_wrap=True)
    for entry in report["engines"]:
        more = (str(entry["num_steps"]), f"{entry['share']:.0%}") if has_steps else ()
        equal = f"{entry['num_equal']}/{report['num_requests']}"
        table.add_row(entry["name"], *(make(entry) for make in COLUMNS.values()), equal, *more)
    return table


def _of_chart(name: str, curves: dict[str, list[list[float]]]) -> Table:
    table = _table(f"{name}: milliseconds of one step")
    places = [place for place, _ in next(iter(curves.values()))]
    for column in ("", *(f"{place:g}" for place in places)):
        table.add_column(column)
    for curve, points in curves.items():
        table.add_row(curve, *(f"{1000 * seconds:.3g}" for _, seconds in points))
    return table


def _of_parts(report: dict[str, Any]) -> Table:
    table = _table(f"processor time of {report['workload']}, {report['manner']}, threads: {report['threads']}")
    for column in ("", "seconds", "share"):
        table.add_column(column)
    total = sum(report["seconds"].values())
    for part, seconds in report["seconds"].items():
        table.add_row(part, f"{seconds:.2f}", f"{seconds / total:.1%}")
    table.add_row("all", f"{total:.2f}", "")
    return table


def _of_damage(report: dict[str, Any]) -> Table:
    table = _table("damaged checkpoints")
    table.add_column("")
    table.add_column("")
    table.add_column("", overflow="fold")
    for word, number in report["outcomes"].items():
        table.add_row(word, str(number), "")
    slowest, heaviest = report["slowest"], report["heaviest"]
    table.add_row("longest time, of the sound one's", f"{slowest['time_ratio']:.2f}", slowest["damage"])
    table.add_row("most memory, of the file's size", f"{heaviest['memory_share']:.2f}", heaviest["damage"])
    table.add_row("memory of the sound one", f"{report['sound_memory_share']:.2f}", "")
    for entry in report["escaped"]:
        table.add_row("escaped", f"seed {entry['seed']}", f"{entry['damage']}: {entry['outcome']}")
    return table


def _of_pairs(title: str, value_by_name: dict[str, float]) -> Table:
    table = _table(title)
    table.add_column("")
    table.add_column("")
    for name, value in value_by_name.items():
        table.add_row(name, f"{value:.3g}")
    return table


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", box=box.HORIZONTALS, pad_edge=False, show_edge=False)
