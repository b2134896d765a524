"""Shows what a check saw: a table on the terminal, or JSON."""

import json
import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich import box
from rich.console import Console
from rich.table import Table

from oracle.verdicts import Cell, Verdict

REPORT_VERSION = 1

_STYLE_BY_VERDICT = {Verdict.PASS: "green", Verdict.FAIL: "bold red", Verdict.VACUOUS: "yellow"}

_SHORT_NAME_BY_DTYPE = {"bfloat16": "bf16", "float16": "fp16"}
"""What fits into the columns of five modes."""


def environment() -> dict[str, str | int]:
    """Gives what bits depend on: versions, instruction set, threads."""
    return {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "torch": torch.__version__,
        "transformers": version("transformers"),
        "instruction_set": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
    }


def show_table(console: Console, cells: Sequence[Cell], modes: Sequence[str]) -> None:
    """Prints the table mode × property, with the figures below each verdict."""
    table = Table(
        title="property × mode",
        caption=_legend(),
        caption_justify="left",
        title_justify="left",
        box=box.HORIZONTALS,  # five modes leave no room for lines between them on a terminal of 80 columns
        collapse_padding=True,
        pad_edge=False,
        show_edge=False,
    )
    table.add_column("property", no_wrap=True)
    for mode in modes:
        table.add_column(mode.replace("_", "_\n"))
    cell_by_place = {(cell.property_name, cell.mode): cell for cell in cells}
    for name in dict.fromkeys(cell.property_name for cell in cells):
        table.add_row(name, *(_cell_text(cell_by_place.get((name, mode))) for mode in modes), end_section=True)
    console.print(table)
    for cell in cells:
        if cell.failure is not None:
            message = f"FAIL {cell.property_name} × {cell.mode}: {cell.failure.message}"
            _print_as_it_is(console, message, style="bold red")
            if cell.failure.scenario is not None:
                console.print("smallest case found:", style="bold")
                _print_as_it_is(console, describe_requests(cell))


def _print_as_it_is(console: Console, text: str, style: str | None = None) -> None:
    console.print(text, style=style, markup=False, emoji=False, highlight=False, soft_wrap=True)


def describe_requests(cell: Cell) -> str:
    """Gives the failing case of a cell in words, one line for each request and text."""
    scenario = cell.failure.scenario if cell.failure is not None else None
    if scenario is None:
        return ""
    manner = "invariant" if scenario.batch_invariant else "plain"
    lines = [f"  dtype {scenario.dtype}, {manner} manner, max_num_seqs {scenario.max_num_seqs}, {scenario.checkpoint}"]
    lines += [f"  request {index}: {request}" for index, request in enumerate(scenario.requests)]
    lines += [f"  text {index}: {text!r}" for index, text in enumerate(scenario.texts)]
    return "\n".join(lines)


def save_failures(cells: Sequence[Cell], folder: Path) -> list[Path]:
    """Writes the smallest case of every failed cell, to be run again with `python -m oracle replay`."""
    paths = []
    for cell in cells:
        if cell.failure is not None and cell.failure.scenario is not None:
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"{cell.property_name}-{cell.mode}.json"
            path.write_text(cell.failure.scenario.to_json(), encoding="utf-8")
            paths.append(path)
    return paths


def as_json(cells: Sequence[Cell], *, num_cases: int, seconds: float, interrupted: bool) -> str:
    """Gives the whole report as JSON."""
    report: dict[str, Any] = {
        "version": REPORT_VERSION,
        "environment": environment(),
        "num_cases": num_cases,
        "seconds": round(seconds, 1),
        "interrupted": interrupted,
        "cells": [_cell_as_json(cell) for cell in cells],
    }
    # Infinity and NaN are no JSON; as text they survive every reader.
    return json.dumps(json.loads(json.dumps(report), parse_constant=str), indent=1)


def _cell_text(cell: Cell | None) -> str:
    if cell is None:
        return "[dim]-[/]"
    style = _STYLE_BY_VERDICT[cell.verdict]
    lines = [f"[{style}]{cell.verdict}[/] {cell.num_witnessed}/{cell.num_examples}"]
    if cell.largest_difference is not None:
        lines.append(f"diff {cell.largest_difference:.0e}")
    if cell.num_schedules:
        lines += [f"runs {cell.num_schedules}", f"rows {cell.num_rows}"]
    if cell.num_near_ties or cell.num_exact_ties:
        lines += [f"near {cell.num_near_ties}", f"exact {cell.num_exact_ties}"]
    if cell.num_half_near_ties:
        lines.append(f"half {cell.num_half_near_ties}")
    for dtype, (subject, reference) in cell.error_sums.items():
        largest, mean = _ratio(subject[0], reference[0]), _ratio(subject[1], reference[1])
        lines += [f"{_SHORT_NAME_BY_DTYPE.get(dtype, dtype)} {largest:.2f}", f"mean {mean:.2f}"]
    return "\n".join(lines)


def _ratio(own: float, reference: float) -> float:
    """Gives one error as a multiple of another; both were summed over the same positions."""
    if reference:
        return own / reference
    return float("inf") if own else 0.0


def _cell_as_json(cell: Cell) -> dict[str, Any]:
    failure = cell.failure
    return {
        "property": cell.property_name,
        "mode": cell.mode,
        "verdict": str(cell.verdict),
        "num_examples": cell.num_examples,
        "num_witnessed": cell.num_witnessed,
        "largest_difference": cell.largest_difference,
        "num_positions": cell.num_positions,
        "num_near_ties": cell.num_near_ties,
        "num_half_near_ties": cell.num_half_near_ties,
        "num_exact_ties": cell.num_exact_ties,
        "num_schedules": cell.num_schedules,
        "num_rows": cell.num_rows,
        "half_errors": cell.error_sums,
        "failure": None if failure is None else failure.message,
        "scenario": None if failure is None or failure.scenario is None else json.loads(failure.scenario.to_json()),
    }


def _legend() -> str:
    return (
        "verdict, then cases that witnessed the property of cases checked; vacuous: none did.\n"
        "diff: largest difference of float32 and float64 logits. near, exact: near ties there, and exact ones.\n"
        "half: near ties in half precision.\n"
        "runs, rows: schedules, and rows of logits in them, that had to be another run's bit for bit.\n"
        "bf16, fp16: largest error against the float64 witness, as a multiple of the reference's; mean: the mean one."
    )
