"""One step of the engine: schedule, execute, sample, advance; token ids in and out, whatever computes the logits."""

import time
from collections import deque
from typing import NamedTuple

from refinfer.engine.answer import Answer
from refinfer.engine.model_input import RowLogits
from refinfer.engine.model_runner import ModelRunner
from refinfer.engine.statistics import Counters, EngineStats, Latencies, StepEvent
from refinfer.errors import RefinferError
from refinfer.sampling import Finish, FinishReason, SampleContext, TokenLogprob, finish, sample_token, token_logprobs
from refinfer.scheduler import BlockOperation, RequestQueues, RequestState, ScheduledRow, SchedulerOutput
from refinfer.tokenizer import Tokenizer

NUM_KEPT_EVENTS = 1000
"""The log holds the latest so many steps."""


class StepRow(NamedTuple):
    """What one sample got out of one step.

    Attributes:
        state: Where it stands after the step.
        token_id: The token it emitted; None if the step ran a part of its prompt only.
        logits: Logits of the last tokens that it ran, as many as were wanted; the last row gave the token.
    """

    state: RequestState
    token_id: int | None
    logits: RowLogits


class _Choice(NamedTuple):
    """What logits say, before anything has changed."""

    token_id: int | None
    logprobs: dict[int, TokenLogprob] | None
    prompt_logprobs: list[dict[int, TokenLogprob]]


class EngineCore:
    """Runs requests through one scheduler and one runner.

    A step that raises leaves every request where it was, and can be tried again.

    Args:
        scheduler: Who runs.
        runner: What computes logits.
        eos_token_ids: End-of-sequence ids of the model.
        max_model_len: Longest request in tokens, prompt and output together.
        tokenizer: Turns tokens into text; None gives no text, and knows no stop strings.

    Attributes:
        scheduler: Who runs.
        runner: What computes logits.
        answers: What every sample that has not ended has given so far, in the order in which they arrived.
        events: What happened in the latest steps.
    """

    def __init__(
        self,
        scheduler: RequestQueues,
        runner: ModelRunner,
        *,
        eos_token_ids: frozenset[int],
        max_model_len: int,
        tokenizer: Tokenizer | None = None,
    ) -> None:
        self.scheduler = scheduler
        self.runner = runner
        self.answers: dict[RequestState, Answer] = {}
        self.events: deque[StepEvent] = deque(maxlen=NUM_KEPT_EVENTS)
        self._eos_token_ids = eos_token_ids
        self._max_model_len = max_model_len
        self._tokenizer = tokenizer
        self._counters = Counters()
        self._latencies = Latencies()
        self._operations: deque[BlockOperation] = deque()

    def add(self, state: RequestState) -> Answer:
        """Queues a sample; gives what it will have given."""
        self.scheduler.add(state)
        answer = self.answers[state] = Answer(state, self._tokenizer)
        self._latencies.arrive(state, time.perf_counter())
        return answer

    def abort(self, state: RequestState) -> None:
        """Ends a sample wherever it is: waiting, between two chunks, decoding, preempted or swapped out."""
        self.answers[state].abort()
        self._finish(state, Finish(FinishReason.ABORT))
        if not self._operations:  # else one of them has failed, which is for the next step to raise
            self._operations.extend(self.scheduler.take_operations())
            self._carry_out_operations()

    def has_unfinished_requests(self) -> bool:
        """Tells whether another step has something to run."""
        return self.scheduler.has_unfinished_requests()

    def step(self) -> list[StepRow]:
        """Runs one step.

        Returns:
            One row for each sample that advanced.
        """
        output = self.scheduler.schedule()
        self._counters.see_schedule(output)
        self._operations.extend(output.block_operations)
        self._carry_out_operations()
        if not output.rows:
            self._log(output, [])
            return []
        logits = self.runner.execute(output.rows)
        choices = [self._choose(row, own) for row, own in zip(output.rows, logits, strict=True)]
        # Nothing has changed up to here, and nothing fails from here on.
        self.scheduler.advance(output.rows)
        self._counters.see_step(output, self.scheduler, self.runner.num_reserved_slots)
        step_rows = []
        for row, choice, own in zip(output.rows, choices, logits, strict=True):
            if not row.state.is_finished:
                self._take(row.state, choice)
                step_rows.append(StepRow(row.state, choice.token_id, own))
        self._log(output, step_rows)
        return step_rows

    def stats(self) -> EngineStats:
        """Gives what the engine has done so far, in numbers."""
        return self._counters.stats(self.scheduler, self._latencies)

    def _carry_out_operations(self) -> None:
        """Does to the cache what was decided; what fails, and all behind it, is tried again before the next step."""
        while self._operations:
            self.runner.prepare([self._operations[0]])
            self._operations.popleft()

    def _choose(self, row: ScheduledRow, logits: RowLogits) -> _Choice:
        """Picks the next token of a row; an error names the request, so that the caller can abort it."""
        try:
            return self._choice(row, logits)
        except RefinferError as error:
            request_id = row.state.request.request_id
            error.values.setdefault("request_id", request_id)
            error.add_note(f"It is request {request_id!r}; abort it, and the others go on.")
            raise

    def _choice(self, row: ScheduledRow, logits: RowLogits) -> _Choice:
        """Picks the next token of a row, and looks up the log-probabilities that it wants."""
        state = row.state
        if state.is_finished:
            return _Choice(None, None, [])
        params = state.request.params
        prompt_logprobs = self._prompt_logprobs(row, logits) if state.wants_prompt_logprobs else []
        if not row.emits:
            return _Choice(None, None, prompt_logprobs)
        context = SampleContext(
            params,
            state.request.seed,
            state.sample_index,
            state.request.prompt_token_ids,
            state.output_token_ids if params.changes_logits or not params.is_greedy else (),
            self._eos_token_ids,
        )
        token_id = sample_token(logits[-1], context)
        logprobs = None if params.logprobs is None else token_logprobs(logits[-1], token_id, params.logprobs)
        return _Choice(token_id, logprobs, prompt_logprobs)

    def _prompt_logprobs(self, row: ScheduledRow, logits: RowLogits) -> list[dict[int, TokenLogprob]]:
        """Looks up the prompt tokens that follow those that ran, as far as they were not looked up before."""
        state = row.state
        num_wanted = state.request.params.prompt_logprobs or 0
        start = state.num_computed_tokens
        stop = min(start + row.num_scheduled_tokens, state.num_prompt_tokens - 1)
        return [
            token_logprobs(logits[position - start], state.token_ids[position + 1], num_wanted)
            for position in range(max(start, state.num_scored_tokens), stop)
        ]

    def _take(self, state: RequestState, choice: _Choice) -> None:
        """Makes what was chosen part of a sample, and ends it where it has to end."""
        answer = self.answers[state]
        if state.wants_prompt_logprobs:
            answer.push_prompt(choice.prompt_logprobs)
            state.num_scored_tokens = max(state.num_scored_tokens, state.num_computed_tokens)
        if choice.token_id is None:
            return
        state.append(choice.token_id)
        self._latencies.emit(state, time.perf_counter())
        end = finish(
            token_id=choice.token_id,
            num_output_tokens=state.num_output_tokens,
            num_tokens=state.num_tokens,
            params=state.request.params,
            eos_token_ids=self._eos_token_ids,
            max_model_len=self._max_model_len,
        )
        end = answer.push(choice.token_id, end, choice.logprobs)
        if end is not None:
            self._finish(state, end)

    def _finish(self, state: RequestState, end: Finish) -> None:
        self.scheduler.finish(state, end.reason, end.stop_reason)
        self._latencies.leave(state)
        del self.answers[state]

    def _log(self, output: SchedulerOutput, step_rows: list[StepRow]) -> None:
        emitted = {row.state: row.token_id for row in step_rows}
        self.events.append(StepEvent.of(self._counters.num_schedules - 1, output, emitted))
