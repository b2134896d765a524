"""What an engine guesses: who is guessed for, how far, and the drafts from the guess to their verification."""

from refinfer.model.model_input import RowLogits
from refinfer.scheduler import RequestQueues, RequestState, ScheduledRow
from refinfer.speculative import Draft, DraftRequest, Proposer, verify


class Speculation:
    """The guesses of one engine.

    Args:
        proposer: What guesses.
        num_speculative_tokens: Most tokens that are guessed for a sample in one step.
        eos_token_ids: End-of-sequence ids of the model.
        max_model_len: Longest request in tokens, prompt and output together.
    """

    def __init__(
        self, proposer: Proposer, num_speculative_tokens: int, *, eos_token_ids: frozenset[int], max_model_len: int
    ) -> None:
        self._proposer = proposer
        self._num_speculative_tokens = num_speculative_tokens
        self._eos_token_ids = eos_token_ids
        self._max_model_len = max_model_len
        self._draft_by_state: dict[RequestState, Draft] = {}

    def propose(self, scheduler: RequestQueues) -> list[Draft]:
        """Guesses for every sample that runs and has nothing but its newest token to run; gives the guesses."""
        num_by_state = {state: num for state in scheduler.running if (num := self._num_to_guess(state)) > 0}
        requests = [
            DraftRequest(state, state.token_ids, num_tokens, state.sample_context(self._eos_token_ids))
            for state, num_tokens in num_by_state.items()
        ]
        drafts = self._proposer.propose(requests)
        self._draft_by_state = dict(zip(num_by_state, drafts, strict=True))
        for state in scheduler.running:
            scheduler.propose(state, self._draft_by_state.get(state, Draft()).token_ids)
        return drafts

    def verify(self, row: ScheduledRow, logits: RowLogits) -> list[int]:
        """Gives the tokens that a row emits whose guessed tokens have run."""
        draft = self._draft_by_state[row.state].first(len(row.draft_token_ids))
        return verify(list(logits), draft, row.state.sample_context(self._eos_token_ids))

    def forget(self, state: RequestState) -> None:
        """Drops what is kept of a sample that has ended."""
        self._draft_by_state.pop(state, None)
        self._proposer.forget(state)

    def reset(self) -> None:
        """Drop what is kept of every sample."""
        self._draft_by_state = {}
        self._proposer.reset()

    def _num_to_guess(self, state: RequestState) -> int:
        """Gives how many tokens may be guessed, none of which lies past the sample's last: the pass emits one more."""
        if state.num_computed_tokens + 1 < state.num_tokens or state.wants_prompt_logprobs:
            return 0
        num_left = self._max_model_len - state.num_tokens
        max_tokens = state.request.params.max_tokens
        if max_tokens is not None:
            num_left = min(num_left, max_tokens - state.num_output_tokens)
        return min(self._num_speculative_tokens, num_left - 1)
