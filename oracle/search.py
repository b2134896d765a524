"""Lets Hypothesis draw scenarios, and shrink one that failed; the same seed draws the same cases."""

import time
from collections.abc import Callable
from contextlib import suppress

from hypothesis import HealthCheck, Phase, Verbosity, given, settings
from hypothesis import seed as with_seed
from hypothesis.errors import Flaky
from hypothesis.strategies import SearchStrategy

from oracle.errors import CheckFailed, OracleError
from oracle.scenario import Scenario
from oracle.verdicts import Failure

_QUIET = settings(
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    report_multiple_bugs=False,
    print_blob=False,
    verbosity=Verbosity.quiet,
)
"""What is wanted of Hypothesis when a case of the harness fails: nothing but the case."""

_PHASES = (Phase.generate, Phase.shrink)


class StopDrawing(BaseException):
    """Raised by a check that wants no further scenario; no `Exception`, since Hypothesis takes those for failures."""


def draw_scenarios(
    strategy: SearchStrategy[Scenario],
    check: Callable[[Scenario], None],
    *,
    num_examples: int,
    seed: int,
    shrink: bool = False,
) -> None:
    """Draws scenarios and hands each to a check, until one raises or there are enough.

    A check that raises `StopDrawing` ends the drawing without a failure; any other error ends it too, and is raised.

    Args:
        strategy: What they are drawn from.
        check: Called with each, and never again after an error unless to `shrink`.
        num_examples: How many to draw.
        seed: Decides what is drawn, together with the number.
        shrink: Whether to search for a smaller scenario on which the check raises as well, once it has raised.
    """
    errors: list[Exception] = []

    @with_seed(seed)
    @settings(_QUIET, max_examples=num_examples, phases=_PHASES if shrink else _PHASES[:1])
    @given(scenario=strategy)
    def draw(scenario: Scenario) -> None:
        try:
            check(scenario)
        except Exception as error:
            if shrink:
                raise
            errors.append(error)
            raise StopDrawing from error

    with suppress(StopDrawing):
        draw()
    if errors:
        raise errors[0]


class ShrinkSearch:
    """Draws the same cases again up to one that failed, and lets Hypothesis shrink that one.

    When time is up, no smaller case is tried any more, and the smallest so far is the result.

    Args:
        check: Checks one case; raises `CheckFailed` where it fails.
        known: The failure to start from.
        scenario: The case it was seen on.
        deadline: When time is up, on the monotonic clock.
    """

    def __init__(
        self, check: Callable[[Scenario], None], known: Failure, scenario: Scenario, *, deadline: float
    ) -> None:
        self._check = check
        self._known = known
        self._first = scenario
        self._deadline = deadline
        self._smallest: tuple[Scenario, CheckFailed] | None = None

    def run(self, strategy: SearchStrategy[Scenario], *, num_examples: int, seed: int) -> Failure:
        """Gives the failure on the smallest case; tells when the case does not fail each time."""
        is_flaky = False
        try:
            draw_scenarios(strategy, self._check_one, num_examples=num_examples, seed=seed, shrink=True)
        except CheckFailed:
            pass  # the smallest case is kept
        except Flaky:
            is_flaky = True
        failure = self._known
        if self._smallest is not None:
            scenario, error = self._smallest
            failure = Failure(str(error), scenario)
        if is_flaky or self._smallest is None:
            message = f"{failure.message} (not every time: run once more, the same case passed)"
            return Failure(message, failure.scenario)
        return failure

    def _check_one(self, scenario: Scenario) -> None:
        if self._smallest is None:
            if scenario == self._first:
                self._try(scenario)
        elif time.monotonic() > self._deadline:
            raise StopDrawing
        else:
            self._try(scenario)

    def _try(self, scenario: Scenario) -> None:
        try:
            self._check(scenario)
        except CheckFailed as error:
            self._smallest = scenario, error
            raise
        except OracleError:
            return  # what the harness cannot judge is no smaller failure
