"""What does each way of looking see of one generated case?"""

from collections.abc import Iterator

import numpy as np

from oracle.case import Case
from oracle.compare import as_rows
from oracle.errors import CheckFailed, MismatchError, OracleError
from oracle.explain.ending_signs import due_end
from oracle.matrix.kills import RULES
from oracle.matrix.usual_rules import Answer, check_rule
from oracle.properties import MODES_BUT_GATHER, PROPERTIES, observe
from oracle.scenario import RequestSpec
from oracle.subjects import RequestRecord

_WAY_BY_PROPERTY = {
    "reference_bits": "reference logits",
    "reference_logits": "reference logits",
    "witness_logits": "reference logits",
    "half_precision": "reference logits",
    "alone_equals_batched": "bitwise",
    "bits": "bitwise",
    "order": "bitwise",
    "chunked_prefill": "bitwise",
    "greedy_tokens": "greedy",
    "stopping": "contract",
    "text": "text",
    "broken_checkpoints": "loader",
}
"""Properties by the way in which they look; two are left out: one is about the oracles alone, and schedules have lanes
of their own."""

CASE_LOOKS = frozenset(_WAY_BY_PROPERTY.values())

_DTYPES_OF_RULES = ("float32", "float64")
"""In half precision a bound of 1e-3 fails where nothing is wrong."""


def seen_in_error(error: BaseException) -> tuple[str, str]:
    """Gives the way in which an error of the engine itself is seen: its samplers refuse what nobody has written."""
    return "poison" if "NaN" in str(error) else "lifecycle", f"{type(error).__name__}: {error}"


def look_at_case(case: Case, wanted: frozenset[str]) -> Iterator[tuple[str, str]]:
    """Gives the ways of looking, and the usual rules, that see something, each with what it says.

    Args:
        case: The case.
        wanted: Which are asked.
    """
    for prop in PROPERTIES:
        way = _WAY_BY_PROPERTY.get(prop.name)
        if way not in wanted or case.scenario.dtype not in prop.dtypes:
            continue
        for mode in prop.modes:
            try:
                observe(prop, case, mode)
            except CheckFailed as error:
                # What the subject raised by itself tells nothing of what this way looks at, but for a broken file.
                is_seen = isinstance(error.__cause__, MismatchError) or way == "loader"
                yield (str(way), str(error)) if is_seen else seen_in_error(error.__cause__ or error)
            except OracleError:  # what the harness cannot judge
                continue
    if wanted.isdisjoint((*RULES, "poison")):
        return
    for mode in MODES_BUT_GATHER:
        yield from _look_at_records(case, mode, wanted)


def _look_at_records(case: Case, mode: str, wanted: frozenset[str]) -> Iterator[tuple[str, str]]:
    try:
        records = case.records(mode)
    # Broad on purpose: the properties have told whatever a subject raises.
    except Exception:  # noqa: BLE001
        return
    for index, (request, record) in enumerate(zip(case.scenario.requests, records, strict=True)):
        what = f"{mode}, request {index}"
        if not np.isfinite(as_rows(record.logits)).all():
            yield "poison", f"{what}: logits hold NaN: a place was read that nobody wrote"
        if case.scenario.dtype in _DTYPES_OF_RULES and record.output_token_ids:
            answer = _answer(case, request, record, what)
            for rule in wanted:
                said = check_rule(rule, answer)
                if said is not None:
                    yield rule, said


def _answer(case: Case, request: RequestSpec, record: RequestRecord, what: str) -> Answer:
    eos_token_ids = frozenset(case.eos_token_ids)
    num_due, *_ = due_end(request, record.output_token_ids, eos_token_ids, case.scenario.max_model_len)
    reference = case.reference_logits(record.token_ids)[case.output_rows(record)]
    return Answer(record.output_token_ids, as_rows(record.logits), reference, num_due, what)
