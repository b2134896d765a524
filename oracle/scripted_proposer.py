"""A proposer that follows a script: it knows what a request will emit, and guesses right or wrong as it is told."""

from collections.abc import Hashable, Mapping, Sequence
from typing import cast

from refinfer.scheduler import RequestState
from refinfer.speculative import Draft, DraftRequest

AnswerKey = tuple[str, int]
"""The name of a request, and which of its samples."""


class ScriptedProposer:
    """Guesses for each place of an output what a script says of it, over and over.

    Args:
        token_ids_by_answer: What each sample will emit.
        guesses: For each place, "right", "wrong", "end" or "nothing"; see `oracle.engine_spec.GUESSES`.
        end_token_id: What "end" guesses.
        vocab_size: Token ids lie below it.
    """

    def __init__(
        self,
        token_ids_by_answer: Mapping[AnswerKey, Sequence[int]],
        guesses: Sequence[str],
        end_token_id: int,
        vocab_size: int,
    ) -> None:
        self._token_ids_by_answer = token_ids_by_answer
        self._guesses = guesses
        self._end_token_id = end_token_id
        self._vocab_size = vocab_size
        self._known: set[Hashable] = set()

    @property
    def num_held_samples(self) -> int:
        """Samples that it was asked about and has not been told to forget, as a model that guesses would keep them."""
        return len(self._known)

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """Guesses for each request; past its last token as if it went on with token 0."""
        self._known.update(request.key for request in requests)
        return [self._guess(request) for request in requests]

    def forget(self, key: Hashable) -> None:
        """Forgets a sample."""
        self._known.discard(key)

    def reset(self) -> None:
        """Forget every sample."""
        self._known.clear()

    def _guess(self, request: DraftRequest) -> Draft:
        state = cast("RequestState", request.key)
        known = self._token_ids_by_answer[state.request.request_id, state.sample_index]
        token_ids: list[int] = []
        for place in range(state.num_output_tokens, state.num_output_tokens + request.num_tokens):
            guess = self._guesses[place % len(self._guesses)]
            if guess == "nothing":
                break
            right = known[place] if place < len(known) else 0
            wrong = (right + 1) % self._vocab_size
            token_ids.append({"right": right, "wrong": wrong, "end": self._end_token_id}[guess])
        return Draft(tuple(token_ids))
