"""How what transformers' `generate` gives becomes answers of the protocol; lists in, plain data out."""

from collections.abc import Sequence

from oracle.engines.messages import EngineSample


def left_padded(prompts: Sequence[Sequence[int]], pad_token_id: int) -> tuple[list[list[int]], list[list[int]]]:
    """Gives the rows of a batch, padded on the left, and their attention mask."""
    width = max(map(len, prompts))
    rows = [[pad_token_id] * (width - len(prompt)) + list(prompt) for prompt in prompts]
    masks = [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts]
    return rows, masks


def without_padding(token_ids: Sequence[int], stop_token_ids: Sequence[int], pad_token_id: int | None) -> list[int]:
    """Takes off what fills a row up after its end.

    A row goes on until all others have ended. What stands after its first stop token is cut only where it is padding
    throughout: a request that went on after its end has to show it.
    """
    stop = next((place for place, token_id in enumerate(token_ids) if token_id in stop_token_ids), None)
    if stop is None or any(token_id != pad_token_id for token_id in token_ids[stop + 1 :]):
        return list(token_ids)
    return list(token_ids[: stop + 1])


def to_sample(
    token_ids: Sequence[int],
    *,
    logprobs: Sequence[float] | None = None,
    rows: Sequence[Sequence[float]] | None = None,
    number: int = 0,
    logits: Sequence[Sequence[float]] | None = None,
) -> EngineSample:
    """Makes an answer; of scores and logits as many as there are tokens are taken.

    Args:
        token_ids: The output.
        logprobs: For each step the log-probability of what came.
        rows: For each step the log-probabilities of all tokens.
        number: How many of the likeliest are wanted.
        logits: For each step the row of logits.
    """
    length = len(token_ids)
    return EngineSample(
        token_ids=tuple(token_ids),
        logprobs=None if logprobs is None else tuple(logprobs[:length]),
        top_logprobs=None if rows is None else tuple(likeliest(row, number) for row in rows[:length]),
        logits=None if logits is None else tuple(tuple(row) for row in logits[:length]),
    )


def likeliest(row: Sequence[float], number: int) -> dict[int, float]:
    """Gives so many of the likeliest tokens; of equal ones the lower ids."""
    token_ids = sorted(range(len(row)), key=lambda token_id: (-row[token_id], token_id))
    return {token_id: row[token_id] for token_id in token_ids[:number]}
