"""Puts an engine in the dock: opens it in many ways, runs what is drawn, judges it, and makes what failed small."""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from oracle.choosers import RandomChooser
from oracle.contract.constructions import Construction, constructions, shapes_in_turn
from oracle.contract.drawing import choose_run
from oracle.contract.failure_book import FailureBook
from oracle.contract.findings import Findings
from oracle.contract.known import first_cover
from oracle.contract.law_check import check_law
from oracle.contract.outcome import EngineFailure, EngineReport
from oracle.contract.refusal_check import check_refusals
from oracle.contract.reproducing import make_all_small, merged
from oracle.contract.scenario import EngineScenario
from oracle.contract.session import EngineSession
from oracle.contract.settings import DockSettings
from oracle.contract.watched import WatchedEngine
from oracle.engines.adapter import EngineAdapter, Refused
from oracle.engines.messages import EngineRequest
from oracle.errors import EngineError, EngineRaised
from oracle.families import FamilySpec

History = tuple[tuple[EngineRequest, ...], ...]
"""Runs that came before in the same engine."""


class Dock:
    """Runs everything on one engine.

    Args:
        engine: The engine.
        settings: How much, and on what.
        on_progress: Called with the share that is done, from 0 to 1, and what comes next.

    Raises:
        EngineError: The engine does not even declare itself.
        OracleError: A setting or a parameter that is named is none of the engine's.
    """

    def __init__(
        self,
        engine: EngineAdapter,
        settings: DockSettings,
        on_progress: Callable[[float, str], None] = lambda _share, _words: None,
    ) -> None:
        self._settings = settings
        self._engine = WatchedEngine(engine)
        self._on_progress = on_progress
        self._book = FailureBook(settings.checks, settings.known)
        self._has_tried_once = False
        declaration = self._engine.declare()
        declaration.check()
        declaration = declaration.fixed_to(settings.knobs)
        if settings.parameters is not None:
            declaration = declaration.limited_to(settings.parameters)
        self._session = EngineSession(
            self._engine,
            declaration,
            folder=settings.folder,
            open_referee=settings.open_referee,
            against=settings.against,
        )
        self.report = EngineReport(
            declaration,
            known=dict.fromkeys(settings.known, 0),
            has_other=settings.against is not None,
            asked_checks=settings.checks,
        )

    def run(self) -> EngineReport:
        """Runs until everything is tried, time is up or somebody interrupts; gives what was seen."""
        report, begin = self.report, time.monotonic()
        with self._interruptible():
            self._try_everything(begin)
        report.failures = self._book.failures
        if not report.interrupted:
            with self._interruptible():
                seconds = self._settings.amount.shrink_seconds
                make_all_small(self._session, report.failures, seconds, lambda words: self._on_progress(1.0, words))
                report.failures = merged(report.failures)
        self._close()
        for failure in report.failures:
            # What is new on a large scenario may turn out to be known when it is small.
            failure.known = failure.known or first_cover(self._settings.known, failure.finding, failure.scenario)
            if failure.known is not None:
                report.known[failure.known] += failure.number
        report.seconds = time.monotonic() - begin
        report.engine_seconds = self._engine.seconds
        report.witnesses = self._engine.witnesses
        return report

    def _close(self) -> None:
        try:
            self._engine.close()
        except EngineError as error:
            if self._settings.wants("alive"):
                self.report.failures.append(EngineFailure(self._session.obituary(error), None))

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Lets an interrupted run still tell what it has seen."""
        try:
            yield
        except KeyboardInterrupt:
            self.report.interrupted = True

    def _try_everything(self, begin: float) -> None:
        settings, num_runs = self._settings, self._settings.amount.num_runs
        ways = self._constructions()
        draws = random.Random(settings.seed)
        for number, construction in enumerate(ways):
            seeds = [draws.getrandbits(64) for _ in range(num_runs)]
            history: History = ()
            for place, seed in enumerate(seeds):
                if settings.time_budget is not None and time.monotonic() > begin + settings.time_budget:
                    return
                share = (number + place / num_runs) / len(ways)
                self._on_progress(share, f"{construction.family} {construction.knobs or ''}")
                requests = self._try_one(construction, history, seed)
                if requests is None:
                    break
                history = (*history, requests)
            if self.report.opened[:1] == [construction] and not self._has_tried_once:
                self._has_tried_once = True
                self._on_progress((number + 1) / len(ways), "what is to be refused, and the law of drawn tokens")
                self._try_once(construction)

    def _constructions(self) -> list[Construction]:
        declaration, settings = self.report.declaration, self._settings
        families = settings.families or declaration.families
        if settings.folder is not None or not families:
            families = ("",)
        shapes = shapes_in_turn(families) if settings.families is None else families
        return constructions(declaration, shapes, settings.amount.num_constructions, settings.seed)

    def _scenario(self, construction: Construction) -> EngineScenario:
        declaration = self.report.declaration
        family = None
        if self._settings.folder is None and construction.family:
            family = FamilySpec.for_engine(construction.family, declaration.head_dims)
        name = f"{declaration.name} {declaration.version}".strip()
        return EngineScenario((), construction.knobs, family, engine=name)

    def _try_one(self, construction: Construction, history: History, seed: int) -> tuple[EngineRequest, ...] | None:
        """Draws one run and judges it; gives its requests, or None where the engine was not opened like that."""
        report, scenario = self.report, self._scenario(construction)
        try:
            model = self._session.open(scenario)
        except Refused as error:
            report.refused.append((construction, str(error)))
            return None
        except EngineError as error:
            self._take(Findings([self._session.obituary(error)]), scenario)
            return None
        if construction not in report.opened:
            report.opened.append(construction)
        report.has_referee = model.referee is not None
        declaration = report.declaration.opened_with(construction.knobs)
        requests = choose_run(RandomChooser(seed), declaration, model.limits)
        findings, scenario = Findings(), replace(scenario, requests=requests)
        trial = self._session.judge(scenario, findings)
        if trial is not None and self._settings.on_run is not None:
            self._settings.on_run(scenario, trial.together)
        report.num_runs += 1
        self._take(findings, scenario, history)
        return requests

    def _try_once(self, construction: Construction) -> None:
        """Runs what needs no drawing: what is to be refused, and the law of drawn tokens."""
        declaration = self.report.declaration.opened_with(construction.knobs)
        scenario = self._scenario(construction)
        counted = Findings()
        found = []
        try:
            model = self._session.open(scenario)
            if self._settings.wants("refusals"):
                reopen = partial(self._session.open, scenario, fresh=True)
                found += check_refusals(self._engine, declaration, model.limits, counted, reopen)
            if self._settings.wants("law") and model.referee is not None:
                found += check_law(self._engine, declaration, model.referee, model.limits, counted)
        except (Refused, EngineError) as error:
            words = f"it was opened before, and now refuses: {error}"
            counted.add(self._session.obituary(error if isinstance(error, EngineError) else EngineRaised(words)))
        for finding, request in found:
            shown = replace(scenario, requests=(request,))
            self._take(Findings([finding]), shown, is_repeatable=True)
        self._take(counted, scenario, is_repeatable=True)

    def _take(
        self,
        findings: Findings,
        scenario: EngineScenario,
        history: History = (),
        *,
        is_repeatable: bool | None = None,
    ) -> None:
        """Enters what was found into the report."""
        total = self.report.findings
        total.num_seen.update(findings.num_seen)
        total.asked.update(findings.asked)
        total.effects.update(findings.effects)
        total.num_reference_ties += findings.num_reference_ties
        total.found += findings.found
        self._book.enter(findings, scenario, history, is_repeatable=is_repeatable)
