"""How are the answers of a server of OpenAI's kind read, wherever it puts token ids and scores?"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from oracle.engines.adapters.openai_dialect import Dialect
from oracle.engines.adapters.openai_http import ServerFailed
from oracle.engines.messages import EngineOutput, EngineRequest, EngineSample

_ID_PREFIX = "token_id:"


def read_output(request: EngineRequest, reply: dict[str, Any], dialect: Dialect) -> EngineOutput:
    """Reads an answer.

    Raises:
        ServerFailed: It is none.
    """
    try:
        choices = sorted(reply["choices"], key=lambda choice: choice.get("index", 0))
        samples = tuple(_sample(request, choice, dialect) for choice in choices)
        prompt_logprobs = _prompt_logprobs(choices[0]) if choices else None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        message = f"what came back for {request.request_id} is no completion: {type(error).__name__}: {error}"
        raise ServerFailed(message) from error
    return EngineOutput(request.request_id, samples, prompt_logprobs)


def find_ids(choice: dict[str, Any]) -> tuple[int, ...] | None:
    """Gives the token ids of an answer, wherever servers put them; None where there are none."""
    logprobs = choice.get("logprobs") or {}
    content = logprobs.get("content")
    for found in (
        choice.get("token_ids"),
        choice.get("tokens"),
        logprobs.get("token_ids"),
        logprobs.get("tokens"),
        None if content is None else [entry.get("id") for entry in content],
    ):
        if found:
            ids = [_id_of(token) for token in found]
            if None not in ids:
                return tuple(token_id for token_id in ids if token_id is not None)
    return () if choice.get("token_ids") == [] or not choice.get("text") else None


def join_events(events: Iterable[dict[str, Any]], abort_after: int) -> dict[str, Any]:
    """Puts a streamed answer together, until it has so many tokens; without ids a piece of text is taken for one.

    Returns:
        An answer as one that came at once has it; those that were cut short end by "abort".
    """
    choice_by_index: dict[int, dict[str, Any]] = {}
    num_pieces = 0
    for event in events:
        if "error" in event:
            message = f"the stream ended with an error: {event['error']}"
            raise ServerFailed(message)
        for piece in event.get("choices", ()):
            index = piece.get("index", 0)
            choice = choice_by_index.setdefault(index, {"index": index, "text": "", "finish_reason": None})
            num_pieces += bool(piece.get("text"))
            _append(choice, piece)
        longest = max((len(find_ids(choice) or ()) for choice in choice_by_index.values()), default=0)
        if max(longest, num_pieces if not longest else 0) >= abort_after:
            break
    choices = list(choice_by_index.values())
    for choice in choices:
        choice["finish_reason"] = choice["finish_reason"] or "abort"
    return {"choices": choices}


def _append(choice: dict[str, Any], piece: dict[str, Any]) -> None:
    choice["text"] += piece.get("text") or ""
    for key in ("finish_reason", "stop_reason"):
        if piece.get(key) is not None:
            choice[key] = piece[key]
    for key in ("token_ids", "tokens"):
        if piece.get(key) is not None:
            choice[key] = [*choice.get(key, []), *piece[key]]
    for key, values in (piece.get("logprobs") or {}).items():
        if isinstance(values, list):
            choice.setdefault("logprobs", {}).setdefault(key, []).extend(values)


def _sample(request: EngineRequest, choice: dict[str, Any], dialect: Dialect) -> EngineSample:
    reason, stop_reason = choice.get("finish_reason"), choice.get("stop_reason")
    if not dialect.gives_ids:
        return EngineSample(tuple(map(ord, choice["text"])), finish_reason=reason)
    ids = find_ids(choice)
    if ids is None:
        message = f"request {request.request_id} has no token ids"
        raise ValueError(message)
    sample = EngineSample(ids, reason, stop_reason if isinstance(stop_reason, int) else None)
    if request.parameters.get("logprobs") is None:
        return sample
    logprobs, top_logprobs = _scores(choice.get("logprobs") or {})
    return replace(sample, logprobs=logprobs, top_logprobs=top_logprobs)


def _scores(logprobs: dict[str, Any]) -> tuple[tuple[float, ...] | None, tuple[dict[int, float], ...] | None]:
    content = logprobs.get("content")
    if content is not None:
        tops = tuple({entry["id"]: entry["logprob"] for entry in place.get("top_logprobs", ())} for place in content)
        return tuple(place["logprob"] for place in content), tops
    values = logprobs.get("token_logprobs")
    tops_by_text = logprobs.get("top_logprobs")
    scores = None if values is None else tuple(float(value) for value in values)
    if tops_by_text is None:
        return scores, None
    entries = tuple({_id_of(token): value for token, value in (entry or {}).items()} for entry in tops_by_text)
    if any(token_id is None for entry in entries for token_id in entry):
        return scores, None
    return scores, tuple({int(token_id or 0): float(value) for token_id, value in entry.items()} for entry in entries)


def _prompt_logprobs(choice: dict[str, Any]) -> tuple[dict[int, float] | None, ...] | None:
    found = choice.get("prompt_logprobs")
    if found is None:
        return None
    return tuple(
        None if entry is None else {int(token_id): float(value["logprob"]) for token_id, value in entry.items()}
        for entry in found
    )


def _id_of(token: Any) -> int | None:
    """The id that a server's word for a token carries."""
    if isinstance(token, bool):
        return None
    if isinstance(token, int):
        return token
    if isinstance(token, str) and token.startswith(_ID_PREFIX) and token.removeprefix(_ID_PREFIX).isdecimal():
        return int(token.removeprefix(_ID_PREFIX))
    return None
