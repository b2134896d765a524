"""What must hold, each by name: the rows of the report."""

from collections.abc import Callable
from dataclasses import dataclass

from oracle.case import Case
from oracle.errors import CheckFailed, InsensitiveModelError, MismatchError, ReferenceUnavailable, ScenarioError
from oracle.loader_properties import check_broken_checkpoints
from oracle.metamorphic_properties import check_alone_equals_batched, check_bits, check_chunked_prefill, check_order
from oracle.observation import Observation
from oracle.reference_properties import (
    check_greedy_tokens,
    check_half_precision,
    check_oracles_agree,
    check_reference_bits,
    check_reference_logits,
    check_stopping,
    check_witness_logits,
)
from oracle.schedule_properties import check_schedules
from oracle.subjects import MODES
from oracle.text_properties import check_text

MODES_BUT_GATHER = tuple(mode for mode in MODES if mode != "paged_gather")
"""Both readers of the paged cache give the same bits, which `bits` and `schedules` hold them to; the rest asks one."""

HALF_DTYPES = ("bfloat16", "float16")
ALL_DTYPES = ("float32", "float64", *HALF_DTYPES)

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
    modes: tuple[str, ...] = MODES_BUT_GATHER
    dtypes: tuple[str, ...] = ALL_DTYPES
    is_generated_only: bool = False


_NOT_THE_SUBJECTS_FAULT = (ReferenceUnavailable, InsensitiveModelError, ScenarioError)
"""What ends a run instead of failing a check: the harness cannot judge."""


def observe(prop: Property, case: Case, mode: str) -> Observation:
    """Holds a mode to a property on one case.

    Raises:
        CheckFailed: The property does not hold, or the subject raised an error on a legal scenario.
        OracleError: The harness cannot judge: a reference, a sensitive model or a legal scenario is lacking.
    """
    try:
        return prop.check(case, mode)
    except _NOT_THE_SUBJECTS_FAULT:
        raise
    except MismatchError as error:
        raise CheckFailed(str(error)) from error
    # Broad on purpose: whatever a subject raises is its failure, and must cost neither the run nor other checks.
    except Exception as error:
        message = f"{type(error).__name__}: {error}"
        raise CheckFailed(message) from error


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
        dtypes=("float32", *HALF_DTYPES),
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
    Property(
        "bits",
        "Is every row of logits the same bit for bit, in every mode, company, order and chunking?",
        check_bits,
        modes=MODES,
    ),
    Property(
        "schedules",
        "Does a request give in any schedule what it gives alone, without a cache?",
        check_schedules,
        modes=MODES,
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
