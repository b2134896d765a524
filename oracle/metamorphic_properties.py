"""Does a request give the same whatever its company, its place in the queue, or its chunks?"""

from oracle.case import Case
from oracle.compare import as_rows, compare_logits, judge_tokens
from oracle.observation import Observation
from oracle.subjects import RequestRecord


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


def _see_same_run(observation: Observation, case: Case, record: RequestRecord, other: RequestRecord, what: str) -> None:
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
    difference = compare_logits(as_rows(record.logits)[:compared], as_rows(other.logits)[:compared], bound, what)
    observation.see_difference(difference)
    observation.num_positions += compared
    if is_tie:
        row = as_rows(record.logits)[same]
        token_ids = record.output_token_ids[same : same + 1]
        judge_tokens(token_ids, row[None], as_rows(other.logits)[same : same + 1], bound, what)
        observation.num_near_ties += 1
