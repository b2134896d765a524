"""What one check of one case saw: whether it witnessed its subject, and the figures."""

from dataclasses import dataclass

from oracle.compare import TokenJudgement


@dataclass
class Observation:
    """What one check of one case saw.

    Attributes:
        witnessed: Whether what the property is about happened; if not, nothing was shown.
        largest_difference: Largest difference of logits; None if none were compared.
        num_near_ties: Tokens explained by a near tie.
        num_exact_ties: Positions with several best logits.
        num_positions: Tokens judged.
        num_schedules: Runs of all requests whose every row of logits was held to the bits of another run.
        num_rows: Those rows.
        subject_errors: Absolute errors against the witness, for properties that are judged over a whole run.
        reference_errors: The reference's, on the same positions.
    """

    witnessed: bool = True
    largest_difference: float | None = None
    num_near_ties: int = 0
    num_exact_ties: int = 0
    num_positions: int = 0
    num_schedules: int = 0
    num_rows: int = 0
    subject_errors: tuple[float, float, int] | None = None
    reference_errors: tuple[float, float, int] | None = None

    def see_difference(self, difference: float) -> None:
        """Takes in a difference of logits."""
        self.largest_difference = max(difference, self.largest_difference or 0.0)

    def see_judgement(self, judgement: TokenJudgement) -> None:
        """Takes in what judging tokens counted."""
        self.num_near_ties += judgement.num_near_ties
        self.num_exact_ties += judgement.num_exact_ties
        self.num_positions += judgement.num_positions
