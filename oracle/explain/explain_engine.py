"""From red to cause, for an engine in the dock: as far as the token ids, and what else it shows, lead."""

import json
import time
from collections.abc import Callable

from oracle.contract.findings import Finding, Findings
from oracle.contract.reproducing import judge_again
from oracle.contract.scenario import EngineScenario
from oracle.contract.session import EngineSession
from oracle.engines.adapter import Refused
from oracle.engines.declaration import EngineDeclaration
from oracle.errors import EngineError
from oracle.explain.clues import Blame, FirstToken, Place, Rung
from oracle.explain.engine_features import (
    ABORTS,
    ARRIVALS,
    EARLIER_RUNS,
    KNOB,
    OTHERS,
    PARAMETER,
    engine_switches,
)
from oracle.explain.explain_scenario import MAX_SECONDS, NothingFailed
from oracle.explain.explanation import CheckFigure, Explanation, Feature, Need
from oracle.explain.feature_search import FeatureSearch

_NEEDS_TENSORS = ("write", "read", "operation")

_COMPONENT_BY_CHECK = {
    "ends": "stop rules",
    "scores": "log-probabilities",
    "prompt_scores": "log-probabilities of the prompt",
    "refusals": "checks of what is asked",
    "law": "drawing tokens",
    "samples": "random numbers",
    "form": "the answers' form",
    "alive": "the engine itself",
}
"""What a check is about, where features say nothing more."""


def explain_engine(
    scenario: EngineScenario, session: EngineSession, *, command: str = "", seconds: float = MAX_SECONDS
) -> Explanation:
    """Explains a failing run of an engine.

    Args:
        scenario: The run.
        session: The engine.
        command: What runs it again, for the reader.
        seconds: How long it may take, but for the run itself.

    Raises:
        NothingFailed: No check finds anything wrong.
    """
    start = time.monotonic()
    findings = Findings()
    judge_again(session, scenario, findings)
    finding = _chosen(findings, scenario)
    declaration = session.declaration
    switches = engine_switches(scenario, finding.request_id, declaration)
    features, minimal = FeatureSearch(
        scenario, switches, _fails_again(session, finding.check), deadline=start + seconds
    ).run()
    token = _first_token(finding, scenario)
    return Explanation(
        kind="engine",
        subject=f"{declaration.name} {declaration.version}".strip(),
        check=finding.check,
        message=finding.message,
        blame=_blame(finding, features, declaration.name),
        checks=tuple(CheckFigure(one.check, declaration.name, str(one.kind), one.message) for one in findings.found),
        rungs=_rungs(declaration, has_token=token is not None, has_features=bool(features)),
        token=token,
        write=None,
        read=None,
        operation=None,
        features=features,
        minimal=minimal,
        steps=(),
        heat=(),
        scenario=json.loads(scenario.to_json()),
        command=command,
        survives_watching=None,
        seconds=time.monotonic() - start,
    )


def _fails_again(session: EngineSession, check: str) -> Callable[[EngineScenario], bool]:
    """Makes what tells whether a changed run fails the same check; one that the engine does not take fails none."""

    def fails(changed: EngineScenario) -> bool:
        findings = Findings()
        try:
            judge_again(session, changed, findings)
        except (EngineError, Refused):
            return False
        return any(one.check == check for one in findings.wrong())

    return fails


def _rungs(declaration: EngineDeclaration, *, has_token: bool, has_features: bool) -> tuple[Rung, ...]:
    """Tells how far the ladder goes, and what the engine lacks for the rest."""
    shows = "activations" in declaration.capabilities
    reason = "nothing reads what it shows yet" if shows else f"{declaration.name} shows no keys, values or activations"
    return (
        Rung("token", has_token, "" if has_token else "the finding is about no single request"),
        *(Rung(name, is_reached=False, note=reason) for name in _NEEDS_TENSORS),
        Rung("features", has_features, "" if has_features else "no time was left"),
    )


def _chosen(findings: Findings, scenario: EngineScenario) -> Finding:
    """Gives the finding of the check that the scenario was saved for, else the first that is wrong."""
    wrong = findings.wrong()
    if not wrong:
        message = "no check finds anything wrong on this case, so there is nothing to explain"
        raise NothingFailed(message)
    return next((one for one in wrong if one.check == scenario.check), wrong[0])


def _first_token(finding: Finding, scenario: EngineScenario) -> FirstToken | None:
    ids = [request.request_id for request in scenario.requests]
    if finding.request_id not in ids:
        return None
    request = ids.index(finding.request_id)
    output_place = finding.place or 0
    position = len(scenario.requests[request].prompt_token_ids) + output_place
    return FirstToken(
        Place(None, request, 0, None if finding.place is None else position),
        output_place,
        "token" if finding.check == "tokens" else finding.check,
        got=finding.message,
        due="what the message says",
        own_margin=None,
        referee_margin=finding.gap,
        bound=finding.bound,
        kind=str(finding.kind),
    )


def _blame(finding: Finding, features: tuple[Feature, ...], engine: str) -> Blame:
    needs = tuple(feature.name for feature in features if feature.need is Need.NEEDED)
    parameters = [name.removeprefix(PARAMETER) for name in needs if name.startswith(PARAMETER)]
    knobs = [name.removeprefix(KNOB) for name in needs if name.startswith(KNOB)]
    component, operation = _COMPONENT_BY_CHECK.get(finding.check, "model"), finding.check
    if parameters:
        component, operation = "sampling parameters", ", ".join(parameters)
    elif knobs:
        component, operation = "settings", ", ".join(knobs)
    elif EARLIER_RUNS in needs:
        component, operation = "cache", "what earlier runs leave behind"
    elif ABORTS in needs:
        component, operation = "scheduler", "aborts"
    elif OTHERS in needs or ARRIVALS in needs:
        component, operation = "batching", "requests that run together"
    if finding.blame:
        operation = ", ".join(finding.blame)
    needed = f"; needs: {', '.join(needs)}" if needs else "; a request by itself, with nothing else, shows it"
    sentence = f"{engine}, {component}: {operation}: {finding.message}{needed}"
    return Blame(component, operation, (), sentence, needs)
