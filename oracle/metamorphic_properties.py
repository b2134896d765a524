"""Does a request give the same whatever its company, its place in the queue, or its chunks?"""

import torch

from oracle.case import Case
from oracle.compare import as_rows, compare_logits, judge_tokens
from oracle.errors import LogitsMismatch, OutcomeMismatch
from oracle.observation import Observation
from oracle.subjects import RequestRecord

NUM_PROMPTS_IN_ORDER = 12
"""Enough that an order of names and one of numbers differ."""


def check_alone_equals_batched(case: Case, mode: str) -> Observation:
    """Holds requests of a batch to the same requests run by themselves: each, or in the invariant manner one.

    There `bits` holds every row of the batch to its request alone, without a cache; what is left to ask is whether
    a request alone in this mode gives the same.
    """
    batched = case.records(mode)
    observation = Observation(witnessed=any(size > 1 for record in batched for size in record.batch_sizes))
    num_alone = 1 if case.scenario.batch_invariant else len(batched)
    for index, record in enumerate(batched[:num_alone]):
        (alone,) = case.records_in_order(mode, (index,))
        _see_same_run(observation, case, record, alone, f"{mode}, request {index}, batched against alone")
    return observation


def check_order(case: Case, mode: str) -> Observation:
    """Holds each request to itself when the others arrive in the opposite order, and answers to that of prompts."""
    count = len(case.scenario.requests)
    if mode == "none" and count > 1:
        _check_answers_in_order(case)
    order = tuple(reversed(range(count)))
    observation = Observation(witnessed=count > 1)
    for index, record in zip(order, case.records_in_order(mode, order), strict=True):
        what = f"{mode}, request {index}, in the opposite order"
        _see_same_run(observation, case, record, case.records(mode)[index], what)
    return observation


def _check_answers_in_order(case: Case) -> None:
    """Asks for more answers than one digit numbers, of one token each; they have to come in the order of prompts."""
    prompts = [(token_id,) for request in case.scenario.requests for token_id in request.prompt_token_ids]
    prompts = (prompts * NUM_PROMPTS_IN_ORDER)[:NUM_PROMPTS_IN_ORDER]
    answered = case.subject("none").prompts_answered(prompts)
    if answered != prompts:
        message = f"none: prompts {prompts} were given, and answered in the order {answered}"
        raise OutcomeMismatch(message, answered=answered)


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
        if case.scenario.batch_invariant:
            whole = as_rows(case.subject(mode).all_logits(prompt))[-1:]
            compare_logits(logits[index : index + 1], whole, 0.0, f"{what}, against the whole prompt")
    return observation


def check_bits(case: Case, mode: str) -> Observation:
    """Holds every row of logits, in the invariant manner, to the bits of its request alone in one pass without a cache.

    Runs the requests in their order and in the opposite one; over the continuous cache also in chunks, the drawn
    ones and some of even length, and in other companies.
    """
    observation = Observation(witnessed=False)
    if not case.scenario.batch_invariant:
        return observation
    requests = case.scenario.requests
    order = tuple(range(len(requests)))
    observation.witnessed = len(requests) > 1 or max(request.max_tokens for request in requests) > 1
    for own_order in dict.fromkeys((order, order[::-1])):
        for index, record in zip(own_order, case.records_in_order(mode, own_order), strict=True):
            expected = case.lone_logits(index)[case.output_rows(record)]
            what = f"{mode}, request {index}, in order {own_order}, against the same alone in one pass"
            _see_same_bits(observation, record.logits, expected, what)
        observation.num_schedules += observation.witnessed
        if mode == "continuous":
            _see_chunks(observation, case, own_order, None)
    for num_chunks in nums_of_chunks(case) if mode == "continuous" else ():
        turn = num_chunks % len(order)
        _see_chunks(observation, case, order[turn:] + order[:turn], num_chunks)
    return observation


def nums_of_chunks(case: Case) -> range:
    """Gives into how many chunks `bits` cuts each request, prompt and output together, besides the drawn cuts.

    No more than the longest request can have; a larger number would be the same run again.
    """
    most = max(len(request.prompt_token_ids) + request.max_tokens for request in case.scenario.requests)
    return range(1, min(most, case.num_chunkings + 1))


def _see_chunks(observation: Observation, case: Case, order: tuple[int, ...], num_chunks: int | None) -> None:
    """Runs requests in chunks, from each one's arrival on.

    Args:
        observation: Takes in what is seen.
        case: The case.
        order: The requests, in the order in which they are packed.
        num_chunks: Chunks of each request; None cuts the prompt where the scenario says, and the output into tokens.
    """
    requests = [case.scenario.requests[index] for index in order]
    token_ids = [case.records_in_order("none", (index,))[0].token_ids[:-1] for index in order]
    cuts = [
        _even_cuts(len(tokens), num_chunks)
        if num_chunks is not None
        else (*request.cuts, *range(len(request.prompt_token_ids), len(tokens)))
        for request, tokens in zip(requests, token_ids, strict=True)
    ]
    logits = case.subject("continuous").run_chunks(token_ids, cuts, [request.arrival for request in requests])
    observation.num_schedules += any(cuts) or len(order) > 1
    for index, own_cuts, own, tokens in zip(order, cuts, logits, token_ids, strict=True):
        rows = [end - 1 for end in (*own_cuts, len(tokens))]
        what = f"request {index} in order {order}, cut at {own_cuts}, against the same alone in one pass"
        _see_same_bits(observation, own, case.lone_logits(index)[rows], what)


def _even_cuts(num_tokens: int, num_chunks: int) -> tuple[int, ...]:
    length = -(-num_tokens // num_chunks)
    return tuple(range(length, num_tokens, length))


def _see_same_bits(observation: Observation, logits: torch.Tensor, expected: torch.Tensor, what: str) -> None:
    """Asks for the same bits in every row; figures are made only if some differ."""
    observation.num_rows += len(logits)
    if not torch.equal(logits, expected):
        compare_logits(as_rows(logits), as_rows(expected), 0.0, what)
        message = f"{what}: {len(logits)} rows of logits instead of {len(expected)}, or rows that are not finite"
        raise LogitsMismatch(message)
    observation.see_difference(0.0)


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
    bound = 0.0 if case.scenario.batch_invariant else 2 * case.bound(record.token_ids)
    difference = compare_logits(as_rows(record.logits)[:compared], as_rows(other.logits)[:compared], bound, what)
    observation.see_difference(difference)
    observation.num_positions += compared
    if is_tie:
        row = as_rows(record.logits)[same]
        token_ids = record.output_token_ids[same : same + 1]
        judge_tokens(token_ids, row[None], as_rows(other.logits)[same : same + 1], bound, what)
        observation.num_near_ties += 1
