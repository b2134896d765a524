"""What must hold, each by name: the rows of the report."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from oracle.case import Case
from oracle.compare import TokenJudgement, as_rows, compare_logits, judge_tokens
from oracle.errors import OutcomeMismatch
from oracle.loader_properties import check_breakages
from oracle.subjects import MODES, RequestRecord
from oracle.text_properties import check_detokenising, check_prompt_ids
from oracle.tolerances import FLOAT64_BOUND, ORACLE_AGREEMENT_BOUND
from refinfer.tokenizer import Tokenizer

HALF_DTYPES = ("bfloat16", "float16")
ALL_DTYPES = ("float32", "float64", *HALF_DTYPES)


@dataclass
class Observation:
    """What one check of one case saw.

    Attributes:
        witnessed: Whether what the property is about happened; if not, nothing was shown.
        largest_difference: Largest difference of logits.
        num_near_ties: Tokens explained by a near tie.
        num_exact_ties: Positions with several best logits.
        num_positions: Tokens judged.
        subject_errors: Absolute errors against the witness, for properties that are judged over a whole run.
        reference_errors: The reference's, on the same positions.
    """

    witnessed: bool = True
    largest_difference: float = 0.0
    num_near_ties: int = 0
    num_exact_ties: int = 0
    num_positions: int = 0
    subject_errors: tuple[float, float, int] | None = None
    reference_errors: tuple[float, float, int] | None = None

    def see_difference(self, difference: float) -> None:
        """Takes in a difference of logits."""
        self.largest_difference = max(self.largest_difference, difference)

    def see_judgement(self, judgement: TokenJudgement) -> None:
        """Takes in what judging tokens counted."""
        self.num_near_ties += judgement.num_near_ties
        self.num_exact_ties += judgement.num_exact_ties
        self.num_positions += judgement.num_positions


Check = Callable[[Case, str], Observation]
"""Checks a property of a mode on a case; raises a `MismatchError` where it does not hold."""


@dataclass(frozen=True)
class Property:
    """One thing that must hold.

    Attributes:
        name: The row of the report.
        question: What it answers, in one sentence.
        check: Holds a mode to it.
        modes: Modes it is about.
        dtypes: Dtypes it is about.
        is_generated_only: Whether it needs a generated checkpoint, since it makes changed copies of it.
    """

    name: str
    question: str
    check: Check
    modes: tuple[str, ...] = MODES
    dtypes: tuple[str, ...] = ALL_DTYPES
    is_generated_only: bool = False


def check_oracles_agree(case: Case, mode: str) -> Observation:  # noqa: ARG001 - the oracles have no mode
    """Holds the float64 witness and the float32 reference against each other."""
    observation = Observation()
    for request in case.scenario.requests:
        token_ids = request.prompt_token_ids
        difference = compare_logits(
            case.reference_logits(token_ids, "float32"),
            case.witness_logits(token_ids),
            ORACLE_AGREEMENT_BOUND,
            "reference against witness",
        )
        observation.see_difference(difference)
    return observation


def check_reference_bits(case: Case, mode: str) -> Observation:
    """Holds all rows of one uncached pass to the reference's bits."""
    observation = Observation()
    for index, record in enumerate(case.records(mode)):
        logits = as_rows(case.subject(mode).all_logits(record.token_ids))
        expected = case.reference_logits(record.token_ids)
        difference = compare_logits(logits, expected, 0.0, f"{mode}, request {index}, all rows")
        observation.see_difference(difference)
    return observation


def check_reference_logits(case: Case, mode: str) -> Observation:
    """Holds the logits of every emitted token to the reference, given the subject's own tokens."""
    observation = Observation()
    for index, record in enumerate(case.records(mode)):
        expected = case.reference_logits(record.token_ids)[case.output_rows(record)]
        what = f"{mode}, request {index}, output rows"
        bound = case.bound(record.token_ids)
        observation.see_difference(compare_logits(as_rows(record.logits), expected, bound, what))
    return observation


def check_greedy_tokens(case: Case, mode: str) -> Observation:
    """Holds every emitted token to the referee's greedy choice, up to ties."""
    observation = Observation(witnessed=False)
    for index, record in enumerate(case.records(mode)):
        referee = case.referee_logits(record.token_ids)[case.output_rows(record)]
        what = f"{mode}, request {index}"
        bound = case.bound(record.token_ids)
        observation.see_judgement(
            judge_tokens(record.output_token_ids, as_rows(record.logits), referee, bound, what)
        )
        observation.witnessed |= len(record.output_token_ids) > 1
    return observation


def check_witness_logits(case: Case, mode: str) -> Observation:
    """Holds float64 logits to the witness."""
    observation = Observation()
    for index, record in enumerate(case.records(mode)):
        expected = case.witness_logits(record.token_ids)[case.output_rows(record)]
        what = f"{mode}, request {index}, against the witness"
        observation.see_difference(compare_logits(as_rows(record.logits), expected, FLOAT64_BOUND, what))
    return observation


def check_half_precision(case: Case, mode: str) -> Observation:
    """Measures the error in half precision against the witness, beside the reference's own."""
    observation = Observation()
    subject, reference = [], []
    for index, record in enumerate(case.records(mode)):
        rows = case.output_rows(record)
        witness = case.witness_logits(record.token_ids)[rows]
        logits = as_rows(record.logits)
        what = f"{mode}, request {index}, in {case.scenario.dtype}"
        compare_logits(logits, witness, float("inf"), what)
        subject.append(np.abs(logits - witness).ravel())
        reference.append(np.abs(case.reference_logits(record.token_ids)[rows] - witness).ravel())
    observation.subject_errors = _error_figures(np.concatenate(subject))
    observation.reference_errors = _error_figures(np.concatenate(reference))
    observation.see_difference(observation.subject_errors[0])
    return observation


def check_alone_equals_batched(case: Case, mode: str) -> Observation:
    """Holds each request of a batch to the same request run by itself."""
    batched = case.records(mode)
    observation = Observation(witnessed=any(size > 1 for record in batched for size in record.batch_sizes))
    for index, record in enumerate(batched):
        (alone,) = case.records_in_order(mode, (index,))
        _see_same_run(observation, case, record, alone, f"{mode}, request {index}, batched against alone")
    return observation


def check_order(case: Case, mode: str) -> Observation:
    """Holds each request to itself when the others arrive in the opposite order."""
    count = len(case.scenario.requests)
    order = tuple(reversed(range(count)))
    observation = Observation(witnessed=count > 1)
    for index, record in zip(order, case.records_in_order(mode, order), strict=True):
        what = f"{mode}, request {index}, in the opposite order"
        _see_same_run(observation, case, record, case.records(mode)[index], what)
    return observation


def check_stopping(case: Case, mode: str) -> Observation:
    """Holds each request to its end: the first end-of-sequence id, else `max_tokens`."""
    eos_token_ids = case.subject(mode).eos_token_ids
    observation = Observation(witnessed=False)
    for index, (request, record) in enumerate(zip(case.scenario.requests, case.records(mode), strict=True)):
        ends = [
            position
            for position, token_id in enumerate(record.output_token_ids)
            if token_id in eos_token_ids and not request.ignore_eos
        ]
        num_expected = ends[0] + 1 if ends else request.max_tokens
        reason = "stop" if ends else "length"
        observation.witnessed |= bool(ends)
        if len(record.output_token_ids) != num_expected or record.finish_reason != reason:
            message = (
                f"{mode}, request {index}: ended after {len(record.output_token_ids)} tokens "
                f"for reason {record.finish_reason!r}; expected {num_expected} and {reason!r}"
            )
            raise OutcomeMismatch(message, index=index, num_tokens=len(record.output_token_ids))
    return observation


def check_chunked_prefill(case: Case, mode: str) -> Observation:
    """Holds the last logits of prompts prefilled in chunks to those of the whole prompts."""
    requests = case.scenario.requests
    observation = Observation(witnessed=any(request.cuts for request in requests))
    prompts = [request.prompt_token_ids for request in requests]
    logits = as_rows(case.subject(mode).chunked_prefill(prompts, [request.cuts for request in requests]))
    for index, prompt in enumerate(prompts):
        expected = case.referee_logits(prompt)[-1:]
        what = f"{mode}, request {index}, prefilled in chunks"
        bound = case.bound(prompt)
        observation.see_difference(compare_logits(logits[index : index + 1], expected, bound, what))
    return observation


def check_text(case: Case, mode: str) -> Observation:  # noqa: ARG001 - text has no mode
    """Holds prompt ids and decoded text to the reference's."""
    if not Tokenizer.exists(case.folder):
        return Observation(witnessed=False)
    check_prompt_ids(case.folder, case.scenario.texts)
    check_detokenising(case.folder, [request.prompt_token_ids for request in case.scenario.requests])
    return Observation(witnessed=bool(case.scenario.texts))


def check_broken_checkpoints(case: Case, mode: str) -> Observation:  # noqa: ARG001 - loading has no mode
    """Holds the loader to a refusal by name for every way of breaking the checkpoint."""
    return Observation(witnessed=check_breakages(case.folder) > 0)


def _see_same_run(
    observation: Observation, case: Case, record: RequestRecord, other: RequestRecord, what: str
) -> None:
    """Compares two runs of one request up to their first near tie; the tokens after it have other prefixes."""
    pairs = zip(record.output_token_ids, other.output_token_ids, strict=False)
    same = 0
    for own, theirs in pairs:
        if own != theirs:
            break
        same += 1
    is_tie = same < len(record.output_token_ids) or same < len(other.output_token_ids)
    compared = same + 1 if is_tie else same
    bound = 2 * case.bound(record.token_ids)
    difference = compare_logits(
        as_rows(record.logits)[:compared], as_rows(other.logits)[:compared], bound, what
    )
    observation.see_difference(difference)
    observation.num_positions += compared
    if is_tie:
        row = as_rows(record.logits)[same]
        token_ids = record.output_token_ids[same : same + 1]
        judge_tokens(token_ids, row[None], as_rows(other.logits)[same : same + 1], bound, what)
        observation.num_near_ties += 1


def _error_figures(errors: np.ndarray) -> tuple[float, float, int]:
    """Gives largest, sum and count, which add up over cases."""
    return float(errors.max()), float(errors.sum()), errors.size


PROPERTIES = (
    Property(
        "oracles_agree",
        "Do witness and reference agree, so that either may judge?",
        check_oracles_agree,
        modes=("none",),
    ),
    Property(
        "reference_bits",
        "Are all logits of one uncached pass the reference's, bit for bit?",
        check_reference_bits,
        modes=("none",),
        dtypes=("float32",),
    ),
    Property(
        "reference_logits",
        "Are the logits of every emitted token the reference's, up to its own noise?",
        check_reference_logits,
        dtypes=("float32",),
    ),
    Property(
        "greedy_tokens",
        "Is every token the referee's greedy choice, up to ties?",
        check_greedy_tokens,
    ),
    Property(
        "witness_logits",
        "Are float64 logits the witness's?",
        check_witness_logits,
        dtypes=("float64",),
    ),
    Property(
        "half_precision",
        "Are bfloat16 and float16 as close to the witness as the reference is?",
        check_half_precision,
        dtypes=HALF_DTYPES,
    ),
    Property(
        "alone_equals_batched",
        "Does a request give the same alone and in company?",
        check_alone_equals_batched,
    ),
    Property("order", "Does the order of arrival change nothing?", check_order),
    Property("stopping", "Does every request end where it should, for the reason it says?", check_stopping),
    Property(
        "chunked_prefill",
        "Does a prompt cut into chunks give what the whole prompt gives?",
        check_chunked_prefill,
        modes=("continuous",),
    ),
    Property("text", "Are prompt ids and decoded text the reference's?", check_text, modes=("none",)),
    Property(
        "broken_checkpoints",
        "Is a broken checkpoint refused, by name?",
        check_broken_checkpoints,
        modes=("none",),
        is_generated_only=True,
    ),
)
"""All properties of a mode, in the order of the report."""
