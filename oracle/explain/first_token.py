"""Which output parts first, when, and is it wrong, rounded or tied?"""

from collections.abc import Iterator

import numpy as np

from oracle.case import Case
from oracle.explain.clues import FirstToken, Place
from oracle.explain.watched_run import WatchedRun
from oracle.lone_answer import SampleRun

_OTHERS = ("finish_reason", "stop_reason", "text", "logprobs", "cumulative_logprob")


def first_token(run: WatchedRun, case: Case | None) -> FirstToken | None:
    """Gives the first output of a run that is not what its request gives alone; None if all is.

    Args:
        run: The run.
        case: Says what the witness gives, for the margins; None for the symbolic model, whose own logits are exact.
    """
    found = list(_differences(run, case))
    return min(found, key=lambda token: (token.what != "token", token.place.step or 0)) if found else None


def _differences(run: WatchedRun, case: Case | None) -> Iterator[FirstToken]:
    for request, (driven, expected) in enumerate(zip(run.drive.driven, run.expected, strict=True)):
        prompt = run.scenario.requests[request].prompt_token_ids
        for own, alone in zip(driven.samples(), expected, strict=False):
            mine, theirs = own.output.token_ids, alone.output.token_ids
            num = next((n for n, pair in enumerate(zip(mine, theirs, strict=False)) if pair[0] != pair[1]), None)
            place = Place(
                run.step_by_token.get((request, own.output.index, num or 0)),
                request,
                own.output.index,
                len(prompt) + (num or 0),
            )
            if num is not None:
                yield _token(place, own, alone, num, case, prompt + tuple(theirs))
            elif run.error is None:
                yield from _other(run, place, own, alone, len(prompt))


def _token(
    place: Place, own: SampleRun, alone: SampleRun, num: int, case: Case | None, token_ids: tuple[int, ...]
) -> FirstToken:
    got, due = own.output.token_ids[num], alone.output.token_ids[num]
    row = own.logits[num].astype(np.float64) if num < len(own.logits) else None
    own_margin = None if row is None else float(row[got] - row[due])
    referee, bound = alone.logits[num].astype(np.float64), 0.0
    if case is not None:
        referee = case.witness_logits(token_ids)[(place.position or 1) - 1]
        bound = 2 * case.bound(token_ids)
    margin = float(referee[due] - referee[got])
    kind = "tied" if margin == 0 else "rounded" if abs(margin) <= bound else "wrong"
    return FirstToken(place, num, "token", str(got), str(due), own_margin, margin, bound, kind)


def _other(run: WatchedRun, place: Place, own: SampleRun, alone: SampleRun, num_prompt: int) -> Iterator[FirstToken]:
    """Gives what else differs where one sample's tokens are the beginning of the other's."""
    mine, theirs = own.output, alone.output
    if mine.finish_reason == "abort":
        return
    num = min(len(mine.token_ids), len(theirs.token_ids))
    step = run.step_by_token.get((place.request, place.sample, max(0, num - 1)))
    place = Place(step, place.request, place.sample, num_prompt + num - 1)
    is_exact = run.scenario.batch_invariant
    names = ("token_ids", *_OTHERS) if is_exact else ("token_ids", *_OTHERS[:3])
    for name in names:
        got, due = getattr(mine, name), getattr(theirs, name)
        if got != due:
            yield FirstToken(place, max(0, num - 1), name, _short(got), _short(due), None, None, None, "wrong")
            return
    if is_exact and own.prompt_logprobs != alone.prompt_logprobs:
        got, due = _short(own.prompt_logprobs), _short(alone.prompt_logprobs)
        yield FirstToken(place, 0, "prompt_logprobs", got, due, None, None, None, "wrong")


def _short(value: object, most: int = 200) -> str:
    text = repr(value)
    return text if len(text) <= most else f"{text[:most]}…"
