"""Does a mode compute what the reference and the witness compute, and end where it should?"""

import numpy as np

from oracle.case import Case
from oracle.compare import as_rows, compare_logits, judge_tokens
from oracle.errors import LogitsMismatch, OutcomeMismatch
from oracle.observation import Observation
from oracle.tolerances import FLOAT64_BOUND, HALF_ERROR_FACTOR, ORACLE_AGREEMENT_BOUND


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
    """Holds all rows of one uncached pass, in the plain manner, to the reference's bits."""
    observation = Observation()
    for index, record in enumerate(case.records(mode)):
        logits = as_rows(case.subject(mode, batch_invariant=False).all_logits(record.token_ids))
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
        observation.see_judgement(judge_tokens(record.output_token_ids, as_rows(record.logits), referee, bound, what))
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
    """Holds the mean error against the witness to the reference's own, and hands both on to be judged over the run."""
    observation = Observation()
    subject, reference = [], []
    for index, record in enumerate(case.records(mode)):
        rows = case.output_rows(record)
        witness = case.witness_logits(record.token_ids)[rows]
        logits = as_rows(record.logits)
        reference_logits = case.reference_logits(record.token_ids)[rows]
        what = f"request {index}, in {case.scenario.dtype}"
        compare_logits(logits, witness, float("inf"), f"{mode}, {what}")
        compare_logits(reference_logits, witness, float("inf"), f"reference, {what}")
        subject.append(np.abs(logits - witness).ravel())
        reference.append(np.abs(reference_logits - witness).ravel())
    observation.subject_errors = _error_figures(np.concatenate(subject))
    observation.reference_errors = _error_figures(np.concatenate(reference))
    observation.see_difference(observation.subject_errors[0])
    mean, reference_mean = float(np.concatenate(subject).mean()), float(np.concatenate(reference).mean())
    if mean > HALF_ERROR_FACTOR * reference_mean:
        message = (
            f"{mode}: the mean error in {case.scenario.dtype} is {mean:.3g}, "
            f"over {HALF_ERROR_FACTOR} times the reference's {reference_mean:.3g}"
        )
        raise LogitsMismatch(message, mean=mean, reference_mean=reference_mean)
    return observation


def check_stopping(case: Case, mode: str) -> Observation:
    """Holds each request to its end: the first end-of-sequence id, else `max_tokens`; and the ids to the files."""
    eos_token_ids = case.eos_token_ids
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
    known = case.subject(mode).eos_token_ids
    if sorted(known) != sorted(set(eos_token_ids)):
        message = f"{mode}: the ids that end a request are {known}, and the checkpoint says {eos_token_ids}"
        raise OutcomeMismatch(message, eos_token_ids=known)
    return observation


def _error_figures(errors: np.ndarray) -> tuple[float, float, int]:
    """Gives largest, sum and count, which add up over cases."""
    return float(errors.max()), float(errors.sum()), errors.size
