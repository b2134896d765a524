"""Holds a draft model to what it guesses without a cache, so that stale keys and values cannot hide in bad guesses."""

from collections.abc import Hashable, Sequence
from dataclasses import replace

import torch

from oracle.errors import InvariantViolation
from refinfer.cache import CausalAttentionView
from refinfer.errors import InvariantError, NoTokenLeftError
from refinfer.model import Llama
from refinfer.sampling import SampleContext, sample_token
from refinfer.scheduler import RequestState
from refinfer.shapes import LogitsRow
from refinfer.speculative import Draft, DraftModelProposer, DraftRequest


class CheckedProposer:
    """Passes guesses of a draft model on, each of which it has made again in one pass over all tokens.

    No guess changes what a request emits, so nothing else would show that a draft model reads the wrong values.

    Args:
        proposer: What guesses; every request has to have a seed or be greedy, so that its guesses are certain.
        model: The same draft model, in the invariant manner.
    """

    def __init__(self, proposer: DraftModelProposer, model: Llama) -> None:
        self._proposer = proposer
        self._model = model
        self._keys: set[Hashable] = set()

    @property
    def num_held_samples(self) -> int:
        """Samples of which the draft model has keys and values."""
        return sum(self._proposer.num_held_tokens(key) > 0 for key in self._keys)

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """Guesses for each request.

        Raises:
            InvariantViolation: Without a cache the model guesses something else.
        """
        self._keys.update(request.key for request in requests)
        drafts = self._proposer.propose(requests)
        for request, draft in zip(requests, drafts, strict=True):
            # A sample for which there is no room, or that has not caught up, is not guessed for, and has not run.
            if draft.token_ids or self._proposer.num_held_tokens(request.key) >= len(request.token_ids):
                self._check(request, draft)
        return drafts

    def forget(self, key: Hashable) -> None:
        """Lets the draft model forget a sample."""
        self._proposer.forget(key)

    def reset(self) -> None:
        """Let the draft model forget every sample."""
        self._proposer.reset()

    def _check(self, request: DraftRequest, draft: Draft) -> None:
        guesses: list[int | None] = list(draft.token_ids)
        if len(guesses) < request.num_tokens:
            guesses.append(None)  # the draft model gave no token there
        token_ids = [*request.token_ids, *draft.token_ids[: len(guesses) - 1]]
        count = len(token_ids)
        rows = list(range(len(request.token_ids) - 1, count))
        view = CausalAttentionView([count])
        logits = self._model.forward(torch.tensor(token_ids), torch.arange(count), view, rows)
        wide = logits if logits.dtype in (torch.float32, torch.float64) else logits.float()
        for place, (row, guess) in enumerate(zip(wide.numpy(), guesses, strict=True)):
            own = [*request.context.output_token_ids, *draft.token_ids[:place]]
            expected = _token_of(row, replace(request.context, output_token_ids=own))
            if guess != expected:
                name = request.key.request.request_id if isinstance(request.key, RequestState) else request.key
                message = (
                    f"request {name}: the draft model guesses {draft.token_ids} after {len(request.token_ids)} tokens; "
                    f"without a cache it guesses {'nothing' if expected is None else expected} at place {place}"
                )
                raise InvariantViolation(message, place=place)


def _token_of(logits: LogitsRow, context: SampleContext) -> int | None:
    """Gives the token that logits give; None where they give none, with which a guess ends."""
    try:
        return sample_token(logits, context)
    except (InvariantError, NoTokenLeftError):
        return None
