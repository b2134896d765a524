"""Checks one case: what a run of many cases hands out, to its own process or to another."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from oracle.case import Case
from oracle.digests import error_line, row_lines
from oracle.errors import CheckFailed
from oracle.observation import Observation
from oracle.properties import Property, observe
from oracle.scenario import Scenario


@dataclass(frozen=True)
class CaseTask:
    """One case and what to hold it to; may be sent to another process.

    Attributes:
        index: Which case of the run it is, counted from 0.
        scenario: What runs.
        folder: The checkpoint, for a scenario that generates none.
        checks: Each property with the mode to hold to it.
        num_chunkings: In how many ways `bits` cuts requests into chunks.
        stop_at_failure: Whether the first failed check is the last.
        digest_modes: Modes whose rows of logits get a line of digest each.
    """

    index: int
    scenario: Scenario
    folder: Path | None
    checks: tuple[tuple[Property, str], ...]
    num_chunkings: int = 2
    stop_at_failure: bool = False
    digest_modes: tuple[str, ...] = ()


@dataclass(frozen=True)
class CaseReport:
    """What was seen of one case.

    Attributes:
        task: The case.
        seen: By property and mode, what the check saw, or the message of its failure.
        digest_lines: Lines for a file of digests.
    """

    task: CaseTask
    seen: dict[tuple[str, str], Observation | str] = field(default_factory=dict)
    digest_lines: tuple[str, ...] = ()


def check_case(task: CaseTask) -> CaseReport:
    """Holds one case to what its task names.

    Raises:
        OracleError: The harness cannot judge the case; a failed check is no error but part of the report.
    """
    case = Case(task.scenario, task.folder, num_chunkings=task.num_chunkings)
    seen: dict[tuple[str, str], Observation | str] = {}
    for prop, mode in task.checks:
        try:
            seen[prop.name, mode] = observe(prop, case, mode)
        except CheckFailed as error:
            seen[prop.name, mode] = str(error)
            if task.stop_at_failure:
                break
    return CaseReport(task, seen, tuple(_digest_lines(task, case)))


def _digest_lines(task: CaseTask, case: Case) -> Iterable[str]:
    for mode in task.digest_modes:
        try:
            records = case.records(mode)
        except Exception as error:  # noqa: BLE001 - a property has failed on it as well, which is reported
            yield error_line(task.index, task.scenario, mode, error)
        else:
            yield from row_lines(task.index, task.scenario, mode, records)
