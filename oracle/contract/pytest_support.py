"""The contract in pytest: a class to subclass and a decorator, which make one test of each check."""

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, ClassVar

import pytest

from oracle.contract.check_engine import check_engine
from oracle.contract.judging import CHECKS
from oracle.contract.outcome import CheckVerdict, EngineReport
from oracle.engines.adapter import EngineAdapter

MakeEngine = Callable[[], EngineAdapter]
"""Makes an adapter; it is called once for all checks."""


_HOW_TO_BE_TOLD = "in a file, `python -m oracle replay FILE --engine NAME --explain` says why"


def assert_kept(report: EngineReport, check: str, *, fails_when_vacuous: bool = False) -> None:
    """Passes, fails or skips as the verdict of one check says.

    Args:
        report: What was seen of an engine.
        check: One of `oracle.contract.judging.CHECKS`.
        fails_when_vacuous: Whether a check that never saw what it is about fails, or is skipped with that reason.

    Raises:
        AssertionError: The engine does not keep it; the message has every kind of failure with its scenario.
    """
    row = next(row for row in report.rows() if row.check == check)
    failures = [failure for failure in report.failures if failure.finding.check == check]
    if row.verdict is CheckVerdict.FAIL:
        shown = [failure for failure in failures if failure.known is None]
        words = [f"{failure.finding.message}\n{failure.scenario.to_json()}" for failure in shown if failure.scenario]
        words += [_HOW_TO_BE_TOLD] if words else []
        raise AssertionError("\n".join([f"{check}: {CHECKS[check].question} No.", row.words, *words]))
    if row.verdict is CheckVerdict.KNOWN:
        pytest.xfail("; ".join(sorted({failure.known.reason for failure in failures if failure.known is not None})))
    if row.verdict is CheckVerdict.SKIPPED:
        pytest.skip(row.words)
    if row.verdict is CheckVerdict.VACUOUS:
        message = f"vacuous: what {check} is about never happened {row.words}"
        if fails_when_vacuous:
            raise AssertionError(message)
        pytest.skip(message)


def assert_all_met(report: EngineReport) -> None:
    """Passes where every known deviation was met.

    Raises:
        AssertionError: One was not: it is to be taken out of the file.
    """
    if report.unmet:
        message = f"not met any more, so take them out: {', '.join(map(str, report.unmet))}"
        raise AssertionError(message)


class EngineContract:
    """Every check of the contract as a test of its own; subclass it, and say how the engine is made.

    Attributes:
        options: What `check_engine` is given besides: profile, families, known, seed and others.
        fails_when_vacuous: Whether a check that never saw what it is about fails.
    """

    options: ClassVar[dict[str, Any]] = {}
    fails_when_vacuous: ClassVar[bool] = False

    def make_engine(self) -> EngineAdapter:
        """Makes the adapter of the engine.

        Raises:
            NotImplementedError: The subclass does not say how.
        """
        message = f"{type(self).__name__} has no make_engine that gives an adapter"
        raise NotImplementedError(message)

    @pytest.fixture(scope="class")
    def engine_report(self) -> EngineReport:
        """What was seen of the engine, once for all checks."""
        return check_engine(self.make_engine(), **self.options)

    @pytest.mark.parametrize("check", CHECKS)
    def test_engine_keeps(self, check: str, engine_report: EngineReport) -> None:
        """The engine keeps one check."""
        assert_kept(engine_report, check, fails_when_vacuous=self.fails_when_vacuous)

    def test_known_deviations_are_still_there(self, engine_report: EngineReport) -> None:
        """Each deviation in the file of known ones was met, or it is to be taken out."""
        assert_all_met(engine_report)


class OneCheck:
    """One check as something to call on an engine; the checks of one engine share one run.

    Args:
        name: One of `oracle.contract.judging.CHECKS`.
        report_of: Gives what was seen of an engine.
    """

    def __init__(self, name: str, report_of: Callable[[MakeEngine], EngineReport]) -> None:
        self.name = name
        self._report_of = report_of

    def __call__(self, make_engine: MakeEngine) -> None:
        """Passes, fails or skips.

        Raises:
            AssertionError: The engine does not keep it.
        """
        assert_kept(self._report_of(make_engine), self.name)


def parametrize_with_checks(engines: Iterable[MakeEngine], **options: Any) -> pytest.MarkDecorator:
    """Gives a decorator for `def test(engine, check): check(engine)`: one test for each engine and check.

    Args:
        engines: Adapter classes, or other functions that make an adapter.
        **options: What `check_engine` is given besides.
    """

    @cache
    def report_of(make_engine: MakeEngine) -> EngineReport:
        return check_engine(make_engine(), **options)

    return pytest.mark.parametrize(
        ("engine", "check"),
        [
            pytest.param(make_engine, OneCheck(name, report_of), id=f"{make_engine.__name__}-{name}")
            for make_engine in engines
            for name in CHECKS
        ],
    )
