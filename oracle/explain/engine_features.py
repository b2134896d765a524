"""How is each feature of a run of an engine in the dock turned off? Token ids are all that this needs."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from oracle.contract.drawing import FOR_DRAWS
from oracle.contract.scenario import EngineScenario
from oracle.engines.declaration import EngineDeclaration
from oracle.engines.messages import EngineRequest
from oracle.explain.feature_search import Switch
from oracle.families import FamilySpec

EARLIER_RUNS, OTHERS, ARRIVALS, ABORTS, DECODING = (
    "earlier runs",
    "other requests",
    "arrivals",
    "aborts",
    "decoding",
)
PARAMETER, KNOB, FAMILY = "sampling: ", "knob: ", "model family"


def engine_switches(
    scenario: EngineScenario, request_id: str | None, declaration: EngineDeclaration
) -> list[Switch[EngineScenario]]:
    """Gives the switches of all features that a run may have.

    Args:
        scenario: The run.
        request_id: The request that fails; None where it is not known.
        declaration: Says what is the simplest value of a knob.
    """
    parameters = dict.fromkeys(name for request in scenario.requests for name in request.parameters)
    found = [
        Switch(EARLIER_RUNS, "nothing runs before it in the same engine", lambda own: replace(own, before=())),
        Switch(OTHERS, "the request that fails runs by itself", lambda own: _alone(own, request_id)),
        Switch(ARRIVALS, "all requests come at the start", _requests(arrival=0)),
        Switch(ABORTS, "no request is aborted", _requests(abort_after=None)),
        Switch(DECODING, "every request emits one token", _requests(max_tokens=1)),
    ]
    found += [Switch(f"{PARAMETER}{name}", f"{name} is not asked for", _parameter(name)) for name in parameters]
    for name, value in scenario.knobs.items():
        simplest = declaration.knobs.get(name, [value])[0]
        found.append(Switch(f"{KNOB}{name}", f"{name} is {simplest!r}", _knob(name, simplest)))
    if declaration.families:
        first = declaration.families[0]
        found.append(Switch(FAMILY, f"the model is a {first}", _family(first, declaration.head_dims)))
    return found


def _alone(scenario: EngineScenario, request_id: str | None) -> EngineScenario:
    kept = tuple(request for request in scenario.requests if request.request_id == request_id)
    return replace(scenario, requests=kept) if kept else scenario


def _requests(**changes: Any) -> Callable[[EngineScenario], EngineScenario]:
    return lambda own: replace(own, requests=tuple(replace(request, **changes) for request in own.requests))


def _parameter(name: str) -> Callable[[EngineScenario], EngineScenario]:
    dropped = {name, *FOR_DRAWS} if name == "temperature" else {name}

    def without(request: EngineRequest) -> EngineRequest:
        kept = {key: value for key, value in request.parameters.items() if key not in dropped}
        return replace(request, parameters=kept)

    return lambda own: replace(own, requests=tuple(map(without, own.requests)))


def _knob(name: str, simplest: Any) -> Callable[[EngineScenario], EngineScenario]:
    return lambda own: replace(own, knobs={**own.knobs, name: simplest})


def _family(name: str, head_dims: tuple[int, ...]) -> Callable[[EngineScenario], EngineScenario]:
    usual = FamilySpec.for_engine(name, head_dims)
    return lambda own: own if own.family is None else replace(own, family=usual)
