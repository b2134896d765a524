"""From red to cause, for a case of `refinfer`: what parts first, what the failure needs, and what is to blame."""

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import torch

from oracle.case import Case
from oracle.errors import OracleError, ReferenceUnavailable
from oracle.explain.clues import Blame, FirstOperation, FirstRead, FirstToken, FirstWrite, Rung
from oracle.explain.explanation import Explanation, Feature, Need
from oracle.explain.failing_check import Checks, FailingCheck, failing_checks
from oracle.explain.feature_search import FeatureSearch
from oracle.explain.features import switches_of
from oracle.explain.first_token import first_token
from oracle.explain.loader_signs import loader_signs
from oracle.explain.lone_pass import collect_all
from oracle.explain.operation_signs import PassCheck
from oracle.explain.property_signs import property_signs
from oracle.explain.suspicion import Moment, Suspicion
from oracle.explain.variants import schedules_for
from oracle.explain.watched_run import WatchedRun, sign_of_error, watch_case, watch_symbolic
from oracle.scenario import Scenario
from refinfer.errors import RefinferError

MAX_SECONDS = 14.0
"""What an explanation may take, unless told; a step that has begun is ended, so that it may be a little more."""

_SHARE_OF_CHECKS, _SHARE_OF_WATCHING = 0.25, 0.5
"""Of the time, after which no further check is run, and no further schedule is tried."""

_SECONDS_OF_FEATURES = 4.0
"""What the search for features gets in any case."""

Clue = TypeVar("Clue", FirstRead, FirstOperation)


class NothingFailed(OracleError):
    """A case that is to be explained passes."""


class ScenarioExplainer:
    """Explains one case.

    Args:
        scenario: The case.
        folder: The checkpoint, for a case that generates none.
        command: What runs the case again, for the reader.
        seconds: How long it may take.
    """

    def __init__(
        self, scenario: Scenario, folder: Path | None = None, *, command: str = "", seconds: float = MAX_SECONDS
    ) -> None:
        self._scenario = scenario
        self._checks = Checks(folder)
        self._command = command
        self._start = time.monotonic()
        self._seconds = seconds

    def explain(self) -> Explanation:
        """Gives the explanation.

        Raises:
            NothingFailed: Every check passes.
        """
        figures = self._checks.run_all(self._scenario, deadline=self._deadline(_SHARE_OF_CHECKS))
        failing = failing_checks(figures)
        if not failing:
            message = f"none of {len(figures)} checks fails on this case, so there is nothing to explain"
            raise NothingFailed(message)
        check, run, signs = self._first_with_signs(failing)
        token = None if run is None else first_token(run, self._case_of(run))
        features, minimal = self._features(check, _request_of(signs, token))
        needs = tuple(feature.name for feature in features if feature.need is Need.NEEDED)
        write = None if run is None else _dated(run.write, token)
        read, operation = _first(signs, FirstRead), _first(signs, FirstOperation)
        survives = None if run is None else bool(run.signs) or token is not None
        return Explanation(
            kind="symbolic" if self._scenario.is_symbolic else "schedule",
            subject=check.mode,
            check=check.name,
            message=check.message,
            blame=blame_of(signs, needs, check),
            checks=tuple(figures),
            rungs=_rungs(token, write, read, operation, bool(features)),
            token=token,
            write=write,
            read=read,
            operation=operation,
            features=features,
            minimal=minimal,
            steps=() if run is None else tuple(step.course for step in run.steps if step.course is not None),
            heat=() if run is None else run.heat,
            scenario=json.loads(self._scenario.to_json()),
            command=self._command,
            survives_watching=survives,
            seconds=time.monotonic() - self._start,
        )

    def _first_with_signs(self, failing: list[FailingCheck]) -> tuple[FailingCheck, WatchedRun | None, list[Suspicion]]:
        """Gives the first failing check that something can be seen of, with its run and the signs; else the first.

        A schedule may fail a property that runs its requests in another way, under another script.
        """
        still, first = self._still_signs(), None
        for check in failing:
            run = self._watched(check)
            found = (check, run, [*still, *(() if run is None else run.signs), *property_signs(check)])
            first = first or found
            if found[2]:
                return found
            if time.monotonic() > self._deadline(_SHARE_OF_WATCHING):
                break
        return first or (failing[0], None, still)

    def _features(self, check: FailingCheck, request: int | None) -> tuple[tuple[Feature, ...], tuple[str, ...] | None]:
        """Turns features off one at a time; the search gets some time even where the rest has taken it all."""
        return FeatureSearch(
            self._scenario,
            switches_of(self._scenario, request),
            lambda own: self._checks.fails(own, check),
            deadline=max(self._deadline(1.0), time.monotonic() + _SECONDS_OF_FEATURES),
        ).run()

    def _deadline(self, share: float) -> float:
        return self._start + share * self._seconds

    def _case_of(self, run: WatchedRun) -> Case | None:
        return None if run.scenario.is_symbolic else self._checks.case(run.scenario)

    def _still_signs(self) -> list[Suspicion]:
        """Looks at what was loaded, and at every operation of a pass without a cache."""
        if self._scenario.is_symbolic:
            return []
        case = self._checks.case(replace(self._scenario, script=()))
        try:
            loaded = case.loaded(batch_invariant=self._scenario.batch_invariant)
            signs = loader_signs(case, loaded)
            for request, spec in enumerate(self._scenario.requests):
                eps = torch.finfo(loaded.model.dtype).eps
                for is_invariant in (self._scenario.batch_invariant, not self._scenario.batch_invariant):
                    model = case.loaded(batch_invariant=is_invariant).model
                    records = collect_all(model, spec.prompt_token_ids)
                    sign = PassCheck(case.folder, records, eps, spec.prompt_token_ids).first_sign(request)
                    signs += [] if sign is None else [sign]
        except ReferenceUnavailable:
            return []
        # Broad on purpose: what a model raises by itself is a sign against it.
        except Exception as error:  # noqa: BLE001
            return [replace(sign_of_error(error, -1), moment=Moment.FORWARD)]
        return sorted(signs, key=lambda sign: sign.order)

    def _watched(self, check: FailingCheck) -> WatchedRun | None:
        """Runs the schedules that may show the failure; gives the first that does, else the first."""
        first = None
        for scenario in schedules_for(self._scenario, check.name):
            try:
                run = self._watch(scenario, check)
            except RefinferError:  # a model that does not even load can have no run
                return first
            if run.signs or run.write is not None or time.monotonic() > self._deadline(_SHARE_OF_WATCHING):
                return run
            first = first or run
        return first

    def _watch(self, scenario: Scenario, check: FailingCheck) -> WatchedRun:
        if scenario.is_symbolic:
            return watch_symbolic(scenario, check.mode)
        return watch_case(self._checks.case(scenario), check.mode)


def blame_of(signs: list[Suspicion], needs: tuple[str, ...], check: FailingCheck) -> Blame:
    """Makes the verdict of the first sign.

    Args:
        signs: The signs, the first first.
        needs: The features without which the case passes.
        check: The check that failed.
    """
    needed = f"; needs: {', '.join(needs)}" if needs else ""
    if not signs:
        sentence = f"{check.name} fails on {check.mode}, and nothing that was watched shows why{needed}"
        return Blame("unknown", check.name, (), sentence, needs)
    first = signs[0]
    suspect, place = first.suspect, first.place
    where = "" if place is None else f" of request {place.request}"
    where += "" if place is None or place.position is None else f", position {place.position}"
    where += "" if place is None or place.step is None else f", first in step {place.step}"
    sentence = f"{suspect.component}: {suspect.operation}{where}: {first.what}{needed}"
    files = suspect.sources
    if first.moment is Moment.AFTER and "speculation" in needs:  # what was raised says little of what guessed
        files = tuple(dict.fromkeys((*files, "refinfer/engine/speculation.py")))
    return Blame(suspect.component, suspect.operation, files, sentence, needs)


def _request_of(signs: list[Suspicion], token: FirstToken | None) -> int | None:
    if token is not None:
        return token.place.request
    return next((sign.place.request for sign in signs if sign.place is not None), None)


def _dated(write: FirstWrite | None, token: FirstToken | None) -> FirstWrite | None:
    """Says how much later the token goes wrong."""
    if write is None or token is None or token.place.step is None or write.place.step is None:
        return write
    return replace(write, num_steps_before_token=token.place.step - write.place.step)


def _first(signs: list[Suspicion], kind: type[Clue]) -> Clue | None:
    return next((sign.clue for sign in signs if isinstance(sign.clue, kind)), None)


def _rungs(
    token: FirstToken | None,
    write: FirstWrite | None,
    read: FirstRead | None,
    operation: FirstOperation | None,
    has_features: bool,  # noqa: FBT001
) -> tuple[Rung, ...]:
    notes = {
        "token": (token is not None, "no output parts from what is due"),
        "write": (write is not None, "every key and value is computed as alone"),
        "read": (read is not None, "what attention reads is what was written"),
        "operation": (operation is not None, "every operation gives what follows from its inputs"),
        "features": (has_features, "no time was left"),
    }
    return tuple(Rung(name, is_reached, "" if is_reached else note) for name, (is_reached, note) in notes.items())


def explain_scenario(
    scenario: Scenario, folder: Path | None = None, *, command: str = "", seconds: float = MAX_SECONDS
) -> Explanation:
    """Explains a failing case of `refinfer`.

    Args:
        scenario: The case.
        folder: The checkpoint, for a case that generates none.
        command: What runs the case again, for the reader.
        seconds: How long it may take.

    Raises:
        NothingFailed: Every check passes.
    """
    return ScenarioExplainer(scenario, folder, command=command, seconds=seconds).explain()
