"""Did each request end where it should, for the reason it says?"""

from oracle.contract.filters import kept_tokens
from oracle.contract.findings import Finding, Findings, Kind
from oracle.contract.processing import growth, processed
from oracle.contract.token_checks import Answer
from oracle.contract.trial import Trial

Fault = tuple[str, tuple[str, ...]]
"""What is wrong with an end, and what makes the difference."""


def check_ends(trial: Trial, judged: list[Answer], findings: Findings) -> None:
    """Checks the end of every answer."""
    for answer in judged:
        findings.see("ends")
        fault = _fault_of(trial, answer)
        if fault is not None:
            findings.add(
                Finding(
                    "ends",
                    Kind.WRONG,
                    f"run {answer.run}: {fault[0]}",
                    answer.request.request_id,
                    len(answer.sample.token_ids),
                    blame=fault[1],
                )
            )


def _fault_of(trial: Trial, answer: Answer) -> Fault | None:
    fault = _fault_of_any(answer)
    if fault is not None or answer.request.abort_after is not None:
        return fault  # how far an aborted request came is up to the engine
    if answer.sample.finish_reason == "abort":
        return "it says that it was aborted, and nobody did", ("abort",)
    tokens, stop = answer.sample.token_ids, _first_stop(answer)
    if stop is not None:
        return _fault_of_stopped(trial, answer, tokens[stop])
    if len(tokens) == answer.request.max_tokens:
        return _fault_of_full(trial, answer)
    return _fault_of_short(trial, answer)


def _fault_of_any(answer: Answer) -> Fault | None:
    """Finds what is wrong with an answer, also with one that was aborted."""
    tokens, stop, named = answer.sample.token_ids, _first_stop(answer), answer.sample.stop_token_id
    if len(tokens) > answer.request.max_tokens:
        return f"{len(tokens)} tokens, and at most {answer.request.max_tokens} were asked for", ("max_tokens",)
    if stop is not None and stop < len(tokens) - 1:
        name = _name_of(answer, tokens[stop])
        return f"it went on after token {tokens[stop]} at {stop}, which ends it ({name})", (name,)
    if named is not None and named not in answer.place.stop_token_ids:
        return f"it says that token {named} ended it, which ends nothing", ("stop token",)
    return None


def _fault_of_full(trial: Trial, answer: Answer) -> Fault | None:
    """Finds what is wrong with an answer that is as long as it may be, and does not end with a stop token."""
    if answer.sample.finish_reason == "stop" and not _is_choice(answer) and not _may_stop_unseen(trial, answer):
        return "it says stop, and no token ended it", ("finish_reason",)
    return None


def _fault_of_stopped(trial: Trial, answer: Answer, token_id: int) -> Fault | None:
    """Finds what is wrong with an answer whose last token ends it."""
    if not trial.declaration.shows_stop_token:
        return f"token {token_id} ends it and stands in the output, which was declared to leave it out", ("stop token",)
    is_length = answer.sample.finish_reason == "length" and len(answer.sample.token_ids) < answer.request.max_tokens
    if is_length:
        return f"it ended with token {token_id}, and says length", ("finish_reason",)
    return None


def _fault_of_short(trial: Trial, answer: Answer) -> Fault | None:
    """Finds what is wrong with an answer that is shorter than it may be, and does not end with a stop token."""
    tokens = answer.sample.token_ids
    if _is_choice(answer):
        return None
    if _may_stop_unseen(trial, answer):
        is_length = answer.sample.finish_reason == "length"
        return (f"it ended after {len(tokens)} tokens, and says length", ("finish_reason",)) if is_length else None
    before = f" before min_tokens {answer.place.value('min_tokens')}" if _is_before_min_tokens(answer) else ""
    message = (
        f"it ended after {len(tokens)} of {answer.request.max_tokens} tokens{before} "
        f"({answer.sample.finish_reason}), and no token of {sorted(answer.place.stop_token_ids)} came"
    )
    return message, ("min_tokens",) if before else ("early",)


def _is_before_min_tokens(answer: Answer) -> bool:
    return len(answer.sample.token_ids) < int(answer.place.value("min_tokens"))


def _is_choice(answer: Answer) -> bool:
    """Tells whether an answer is one of the choices of its request, in full."""
    return list(answer.sample.token_ids) in [list(choice) for choice in answer.place.value("choices") or ()]


def _may_stop_unseen(trial: Trial, answer: Answer) -> bool:
    """Tells whether the next token may be one that ends the request, and that the engine leaves out of its output."""
    if trial.declaration.shows_stop_token:
        return False
    number = len(answer.sample.token_ids)
    place = answer.at(number)
    scores = processed(answer.row(number), place)
    kept = kept_tokens(scores, place, answer.judgement.bound * growth(place))
    stops = {answer.sample.stop_token_id} & place.stop_token_ids or place.stop_token_ids
    return any(kept[token_id] for token_id in stops if token_id is not None and 0 <= token_id < len(kept))


def _first_stop(answer: Answer) -> int | None:
    """Gives where the first token stands that ends the request."""
    min_tokens, stops = int(answer.place.value("min_tokens")), answer.place.stop_token_ids
    places = [at for at, token_id in enumerate(answer.sample.token_ids) if token_id in stops and at >= min_tokens]
    return places[0] if places else None


def _name_of(answer: Answer, token_id: int) -> str:
    return "stop_token_ids" if token_id in (answer.place.value("stop_token_ids") or ()) else "eos"
