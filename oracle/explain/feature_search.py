"""Which features does a failure need? Each is turned off by itself, then as many as can be."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from oracle.errors import ScenarioError
from oracle.explain.explanation import Feature, Need

Case = TypeVar("Case")
"""A scenario, of `refinfer` or of an engine in the dock."""


@dataclass(frozen=True)
class Switch(Generic[Case]):
    """How a feature is turned off.

    Attributes:
        name: The feature.
        change: What is changed, in words.
        off: Makes the scenario without it; the same one where it does not have it.
    """

    name: str
    change: str
    off: Callable[[Case], Case]


class FeatureSearch(Generic[Case]):
    """Turns features off.

    Args:
        scenario: A case that fails.
        switches: How its features are turned off.
        fails: Tells whether a scenario fails.
        deadline: When the search ends, on the monotonic clock.
    """

    def __init__(
        self, scenario: Case, switches: Sequence[Switch[Case]], fails: Callable[[Case], bool], *, deadline: float
    ) -> None:
        self._scenario = scenario
        self._fails = fails
        self._deadline = deadline
        self._switches = switches

    def run(self) -> tuple[tuple[Feature, ...], tuple[str, ...] | None]:
        """Gives what each feature is to the failure, and a smallest set that still fails, if time was left for it."""
        features: list[Feature] = []
        for switch in self._switches:
            if time.monotonic() > self._deadline:
                return tuple(features), None
            features.append(Feature(switch.name, self._need(switch), switch.change))
        present = [feature.name for feature in features if feature.need is not Need.NOT_PRESENT]
        return tuple(features), self._minimal(present)

    def _need(self, switch: Switch[Case]) -> Need:
        without = _without(switch, self._scenario)
        if without is None or without == self._scenario:
            return Need.NOT_PRESENT
        return Need.NOT_NEEDED if self._fails(without) else Need.NEEDED

    def _minimal(self, present: Sequence[str]) -> tuple[str, ...] | None:
        scenario, kept = self._scenario, []
        for switch in self._switches:
            if switch.name not in present:
                continue
            if time.monotonic() > self._deadline:
                return None
            without = _without(switch, scenario)
            if without is not None and without != scenario and self._fails(without):
                scenario = without
            elif without != scenario:
                kept.append(switch.name)
        return tuple(kept)


def _without(switch: Switch[Case], scenario: Case) -> Case | None:
    try:
        return switch.off(scenario)
    except ScenarioError:
        return None
