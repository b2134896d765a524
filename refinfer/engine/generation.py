"""One run of several requests, step by step, from the first prompt to the last token."""

from collections.abc import Container, Sequence
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from refinfer.config import EngineConfig
from refinfer.engine.model_runner import make_runner
from refinfer.model import Llama
from refinfer.sampling import finish_reason, greedy_token_ids
from refinfer.scheduler import ContinuousScheduler, Request, RequestState, StaticScheduler


@dataclass(frozen=True)
class StepRow:
    """What one request got out of one step.

    Attributes:
        state: Where the request stands after the step.
        token_id: The token it emitted.
        logits: The logits that the token was picked from.
    """

    state: RequestState
    token_id: int
    logits: Float[Tensor, " vocab"]


class Generation:
    """Runs requests through one scheduler and one runner; it owns all state of the run.

    Args:
        model: The model.
        config: Cache and batch size.
        requests: What was asked; the run serves them in this order.
        eos_token_ids: End-of-sequence ids of the model.
        max_model_len: Longest request in tokens, prompt and output together.
    """

    def __init__(
        self,
        model: Llama,
        config: EngineConfig,
        requests: Sequence[Request],
        *,
        eos_token_ids: Container[int],
        max_model_len: int,
    ) -> None:
        # Without a cache there is nothing to join or leave, so its batches are static too.
        self._scheduler: StaticScheduler | ContinuousScheduler = (
            ContinuousScheduler(config.max_num_seqs)
            if config.cache == "continuous"
            else StaticScheduler(config.max_num_seqs)
        )
        self._runner = make_runner(config.cache, model, max_model_len)
        self._eos_token_ids = eos_token_ids
        self._max_model_len = max_model_len
        self.states = [RequestState(request) for request in requests]
        for state in self.states:
            self._scheduler.add(state)

    def has_unfinished_requests(self) -> bool:
        """Tells whether another step has something to run."""
        return self._scheduler.has_unfinished_requests()

    def step(self) -> list[StepRow]:
        """Runs one step: schedule, execute, sample, update.

        Returns:
            One row for each request that emitted a token; rows that had ended before are left out.
        """
        rows = self._scheduler.schedule()
        if not rows:
            return []
        logits = self._runner.execute(rows)
        is_running = [not state.is_finished for state in rows]
        token_ids = greedy_token_ids(logits[is_running])
        running = [state for state in rows if not state.is_finished]
        step_rows = []
        for state, token_id, row_logits in zip(running, token_ids, logits[is_running], strict=True):
            state.num_computed_tokens = state.num_tokens
            state.output_token_ids.append(token_id)
            state.finish_reason = finish_reason(
                token_id=token_id,
                num_output_tokens=len(state.output_token_ids),
                num_tokens=state.num_tokens,
                params=state.request.params,
                eos_token_ids=self._eos_token_ids,
                max_model_len=self._max_model_len,
            )
            step_rows.append(StepRow(state, token_id, row_logits))
        return step_rows
