"""How much of an engine is tried, and on what."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from oracle.contract.known import KnownDeviation
from oracle.contract.recording import Against
from oracle.contract.scenario import EngineScenario
from oracle.contract.session import OpenReferee, open_model_referee
from oracle.engines.messages import EngineRun


@dataclass(frozen=True)
class Profile:
    """How much is tried.

    Attributes:
        num_constructions: Ways in which the engine is opened.
        num_runs: Runs in each of them.
        shrink_seconds: For all failures together.
    """

    num_constructions: int
    num_runs: int
    shrink_seconds: float


PROFILES = {"quick": Profile(12, 4, 60.0), "ci": Profile(24, 8, 120.0), "deep": Profile(96, 24, 900.0)}


@dataclass(frozen=True)
class DockSettings:
    """How an engine is put in the dock.

    Attributes:
        folder: A checkpoint instead of generated ones.
        profile: How much is tried, one of `PROFILES`.
        seed: The same seed draws the same.
        families: Families, or variants of families, to try; None for all that the engine declares, with their
            variants.
        known: Deviations that are known.
        open_referee: Gives the referee of a checkpoint.
        time_budget: Seconds after which no further run begins.
        shrink: Whether failures are made small.
        num_constructions: Ways of opening it, instead of the profile's.
        num_runs: Runs in each, instead of the profile's.
        against: Gives what another engine gave; None to compare with none.
        on_run: Called with each scenario and what came together.
        checks: Names of the checks whose findings count; None for all.
    """

    folder: Path | None = None
    profile: str = "quick"
    seed: int = 0
    families: tuple[str, ...] | None = None
    known: tuple[KnownDeviation, ...] = ()
    open_referee: OpenReferee = open_model_referee
    time_budget: float | None = None
    shrink: bool = True
    num_constructions: int | None = None
    num_runs: int | None = None
    against: Against | None = None
    on_run: Callable[[EngineScenario, EngineRun], None] | None = None
    checks: tuple[str, ...] | None = None

    def wants(self, check: str) -> bool:
        """Tells whether the findings of a check count."""
        return self.checks is None or check in self.checks

    @property
    def amount(self) -> Profile:
        """How much is tried, with what is said instead of the profile."""
        profile = PROFILES[self.profile]
        return Profile(
            self.num_constructions or profile.num_constructions,
            self.num_runs or profile.num_runs,
            profile.shrink_seconds if self.shrink else 0.0,
        )
