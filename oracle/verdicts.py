"""What was seen of one property in one mode, and the verdict that follows."""

from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from oracle.observation import Observation
from oracle.scenario import Scenario
from oracle.tolerances import HALF_ERROR_FACTOR, MAX_NEAR_TIE_RATE


class Verdict(StrEnum):
    """What a cell of the table says."""

    PASS = "pass"
    FAIL = "fail"
    VACUOUS = "vacuous"


@dataclass(frozen=True)
class Failure:
    """The first failed check of a cell, and the smallest case that still fails.

    Attributes:
        message: What went wrong, on the smallest case.
        scenario: That case; None where the verdict is about the run as a whole.
    """

    message: str
    scenario: Scenario | None


@dataclass
class Cell:
    """What was seen of one property in one mode.

    Attributes:
        property_name: The row.
        mode: The column.
        num_examples: Cases checked.
        num_witnessed: Cases in which what the property is about happened.
        largest_difference: Largest difference of float32 and float64 logits; None if none were compared.
        num_positions: Tokens judged.
        num_near_ties: Tokens explained by a near tie, in float32 and float64.
        num_half_near_ties: The same in half precision, where they are common.
        num_exact_ties: Positions with several best logits.
        num_schedules: Runs whose every row of logits was held to the bits of another run.
        num_rows: Those rows.
        error_sums: For each half dtype, (largest, sum, count) of the subject's and the reference's errors.
        failure: What failed, if anything did.
    """

    property_name: str
    mode: str
    num_examples: int = 0
    num_witnessed: int = 0
    largest_difference: float | None = None
    num_positions: int = 0
    num_near_ties: int = 0
    num_half_near_ties: int = 0
    num_exact_ties: int = 0
    num_schedules: int = 0
    num_rows: int = 0
    error_sums: dict[str, tuple[tuple[float, float, int], tuple[float, float, int]]] = field(default_factory=dict)
    failure: Failure | None = None

    @property
    def verdict(self) -> Verdict:
        """Fail if anything failed, vacuous if nothing was witnessed, else pass."""
        if self.failure is not None:
            return Verdict.FAIL
        return Verdict.PASS if self.num_witnessed else Verdict.VACUOUS

    def see(self, observation: Observation, dtype: str) -> None:
        """Takes in one checked case."""
        self.num_examples += 1
        self.num_witnessed += observation.witnessed
        self.num_exact_ties += observation.num_exact_ties
        self.num_schedules += observation.num_schedules
        self.num_rows += observation.num_rows
        if dtype in ("float32", "float64"):
            if observation.largest_difference is not None:
                self.largest_difference = max(observation.largest_difference, self.largest_difference or 0.0)
            self.num_positions += observation.num_positions
            self.num_near_ties += observation.num_near_ties
        else:
            self.num_half_near_ties += observation.num_near_ties
        if observation.subject_errors is not None and observation.reference_errors is not None:
            old = self.error_sums.get(dtype, ((0.0, 0.0, 0), (0.0, 0.0, 0)))
            self.error_sums[dtype] = (
                _added(old[0], observation.subject_errors),
                _added(old[1], observation.reference_errors),
            )

    def judge_run(self) -> None:
        """Judges what only a whole run can show: the rate of near ties, and the error in half precision."""
        if self.failure is None and self.num_near_ties > max(1.0, MAX_NEAR_TIE_RATE * self.num_positions):
            self.failure = Failure(
                f"{self.num_near_ties} of {self.num_positions} tokens are near ties; "
                f"at most {MAX_NEAR_TIE_RATE:.0%} may be",
                None,
            )
        for dtype, (subject, reference) in self.error_sums.items():
            for name, own, theirs in (
                ("largest", subject[0], reference[0]),
                ("mean", subject[1] / subject[2], reference[1] / reference[2]),
            ):
                if self.failure is None and not own <= HALF_ERROR_FACTOR * theirs:
                    self.failure = Failure(
                        f"the {name} error in {dtype} is {own:.3g}, "
                        f"over {HALF_ERROR_FACTOR} times the reference's {theirs:.3g}",
                        None,
                    )


def _added(old: tuple[float, float, int], new: tuple[float, float, int]) -> tuple[float, float, int]:
    return float(np.maximum(old[0], new[0])), old[1] + new[1], old[2] + new[2]  # a NaN stays
