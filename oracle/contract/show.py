"""Shows what was seen of an engine: the conformance card on a terminal, JSON, and scenario files."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from oracle.contract.constructions import covering_array, num_pairs
from oracle.contract.judging import CHECKS
from oracle.contract.outcome import CheckRow, CheckVerdict, EngineFailure, EngineReport
from oracle.contract.scenario import EngineScenario
from oracle.engines.declaration import EngineDeclaration
from oracle.engines.messages import EngineRequest
from oracle.report import environment

ENGINE_REPORT_VERSION = 1
"""Raised whenever a reader of the older schema would misunderstand; it is `report.schema.json` beside this file."""

_STYLE_BY_VERDICT = {
    CheckVerdict.PASS: "green",
    CheckVerdict.FAIL: "bold red",
    CheckVerdict.KNOWN: "yellow",
    CheckVerdict.VACUOUS: "yellow",
    CheckVerdict.SKIPPED: "dim",
}


def show_card(console: Console, report: EngineReport) -> None:
    """Prints the conformance card: a row for each check, then each kind of failure, then what was covered."""
    declaration = report.declaration
    name = f"{declaration.name} {declaration.version}".strip()
    title = f"{name}, which claims {declaration.contract} in {declaration.dtype}"
    table = Table(title=title, title_justify="left", box=box.HORIZONTALS, pad_edge=False, show_edge=False)
    table.add_column("check", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("judged", justify="right")
    table.add_column("what it asks, or why there is no answer")
    for row in report.rows():
        style = _STYLE_BY_VERDICT[row.verdict]
        table.add_row(
            row.check, f"[{style}]{row.verdict}[/]", str(row.num_seen), row.words or CHECKS[row.check].question
        )
    console.print(table)
    for failure in report.failures:
        _show_failure(console, failure, declaration)
    for deviation in report.unmet:
        line = f"not met any more: {deviation} ({deviation.reason}); take it out of the file of known deviations"
        _print_as_it_is(console, line, style="bold red")
    _print_as_it_is(console, "\n".join(_coverage(report)))


def _show_failure(console: Console, failure: EngineFailure, declaration: EngineDeclaration) -> None:
    word = "FAIL" if failure.known is None else "KNOWN"
    style = "bold red" if failure.known is None else "yellow"
    _print_as_it_is(console, f"{word} {failure.finding.check}: {failure.finding.message}", style=style)
    notes = [f"met {failure.number} times"] if failure.number > 1 else []
    if failure.known is not None:
        notes.append(f"known: {failure.known.reason}")
    if failure.is_repeatable is False:
        notes.append("it did not come again in a fresh engine")
    if notes:
        _print_as_it_is(console, f"  {', '.join(notes)}")
    # What was not refused stands in the message, and the settings it met do not matter.
    if failure.scenario is not None and failure.finding.check != "refusals":
        _print_as_it_is(console, f"  {_words_of_settings(failure.scenario, declaration)}")
        for request in failure.scenario.requests:
            _print_as_it_is(console, f"  {_words_of_request(request)}")


def _words_of_settings(scenario: EngineScenario, declaration: EngineDeclaration) -> str:
    """Names the model and what differs from the simplest way of opening the engine."""
    words = ["the model given" if scenario.family is None else scenario.family.family]
    simplest = {name: values[0] for name, values in declaration.knobs.items()}
    words += [f"{name} {value!r}" for name, value in scenario.knobs.items() if simplest.get(name) != value]
    if scenario.before:
        words.append(f"after {len(scenario.before)} other runs")
    return ", ".join(words)


def _words_of_request(request: EngineRequest) -> str:
    """Says in one line what a request asks for."""
    prompt = " ".join(map(str, request.prompt_token_ids))
    words = [
        f"{request.request_id}: {len(request.prompt_token_ids)} tokens [{prompt}] and at most {request.max_tokens} more"
    ]
    words += [f"{name} {value!r}" for name, value in request.parameters.items()]
    if request.arrival:
        words.append(f"arrives at {request.arrival}")
    if request.abort_after is not None:
        words.append(f"is aborted after {request.abort_after}")
    return ", ".join(words)


def _coverage(report: EngineReport) -> list[str]:
    """Tells what was tried, and what the engine says happened."""
    findings, declaration = report.findings, report.declaration
    rows = covering_array(declaration)
    opened = [construction.knobs for construction in report.opened]
    families = sorted({construction.family for construction in report.opened})
    shown = ", ".join(f"{name} {findings.effects[name]}/{findings.asked[name]}" for name in declaration.parameters)
    witnesses = ", ".join(f"{name} {number}" for name, number in report.witnesses.items())
    ties = f"near ties {report.num_near_ties} of {findings.num_seen['tokens']} tokens"
    lines = [
        f"{report.num_runs} runs in {len(report.opened)} constructions, families {', '.join(families)}",
        _covered(opened, rows),
        f"parameters, shown of asked: {shown or 'none'}",
        f"witnesses: {witnesses or 'none'}",
        f"{ties}; {report.seconds:.0f} s, of which the engine took {report.engine_seconds:.0f} s",
    ]
    lines += [
        f"did not open: {construction.family} {construction.knobs}: {words}" for construction, words in report.refused
    ]
    if report.interrupted:
        lines.append("interrupted: what was not seen may be wrong")
    return lines


def _covered(opened: Sequence[dict[str, Any]], rows: Sequence[dict[str, Any]]) -> str:
    """Tells how many pairs of settings came up, or how many values where there is one setting."""
    if num_pairs(rows):
        return f"pairs of knob values that came up: {num_pairs(opened)} of {num_pairs(rows)}"
    return f"settings that came up: {len({repr(row) for row in opened})} of {len(rows)}"


def as_json(report: EngineReport) -> str:
    """Gives the whole report as JSON, as the published schema says."""
    declaration = report.declaration
    data: dict[str, Any] = {
        "version": ENGINE_REPORT_VERSION,
        "engine": declaration.to_data(),
        "environment": environment(),
        "verdict": str(report.verdict),
        "checks": [_row_as_data(row) for row in report.rows()],
        "failures": [_failure_as_data(failure) for failure in report.failures],
        "known_and_not_met": [str(deviation) for deviation in report.unmet],
        "parameters": {
            name: {"asked": report.findings.asked[name], "shown": report.findings.effects[name]}
            for name in declaration.parameters
        },
        "witnesses": dict(report.witnesses),
        "constructions": [{"family": each.family, "knobs": each.knobs} for each in report.opened],
        "not_opened": [{"family": each.family, "knobs": each.knobs, "words": words} for each, words in report.refused],
        "num_runs": report.num_runs,
        "num_near_ties": report.num_near_ties,
        "num_tokens": report.findings.num_seen["tokens"],
        "seconds": round(report.seconds, 1),
        "engine_seconds": round(report.engine_seconds, 1),
        "interrupted": report.interrupted,
    }
    # Infinity and NaN are no JSON; as text they survive every reader.
    return json.dumps(json.loads(json.dumps(data), parse_constant=str), indent=1)


def _row_as_data(row: CheckRow) -> dict[str, Any]:
    return {"check": row.check, "verdict": str(row.verdict), "num_seen": row.num_seen, "words": row.words}


def _failure_as_data(failure: EngineFailure) -> dict[str, Any]:
    finding = failure.finding
    return {
        "check": finding.check,
        "kind": str(finding.kind),
        "message": finding.message,
        "request_id": finding.request_id,
        "place": finding.place,
        "gap": finding.gap,
        "bound": finding.bound,
        "blame": list(finding.blame),
        "number": failure.number,
        "known": None if failure.known is None else failure.known.reason,
        "is_repeatable": failure.is_repeatable,
        "scenario": None if failure.scenario is None else json.loads(failure.scenario.to_json()),
    }


def save_scenarios(report: EngineReport, folder: Path) -> list[Path]:
    """Writes the scenario of every failure that is not known, to be run again with `python -m oracle replay`."""
    paths: list[Path] = []
    for failure in report.failures:
        if failure.scenario is None or failure.known is not None:
            continue
        folder.mkdir(parents=True, exist_ok=True)
        words = "-".join((report.declaration.name, failure.finding.check, *failure.finding.blame))
        name = re.sub(r"[^\w.]+", "-", words)[:80].strip("-")
        path = folder / f"{name}.json"
        number = 2
        while path in paths:
            path = folder / f"{name}-{number}.json"
            number += 1
        path.write_text(failure.scenario.to_json(), encoding="utf-8")
        paths.append(path)
    return paths


def _print_as_it_is(console: Console, text: str, style: str | None = None) -> None:
    console.print(text, style=style, markup=False, emoji=False, highlight=False, soft_wrap=True)
