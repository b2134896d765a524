"""One step of the engine: guess, schedule, execute, sample, advance; token ids in and out, whatever computes logits."""

import time
from collections import deque
from functools import partial

from refinfer.engine.answer import Answer, Choice, StepRow, Taken
from refinfer.engine.model_runner import ModelRunner
from refinfer.engine.speculation import Speculation
from refinfer.engine.statistics import Counters, EngineStats, Latencies, StepEvent
from refinfer.errors import RefinferError
from refinfer.model.model_input import RowLogits
from refinfer.sampling import Finish, FinishReason, TokenLogprob, finish, sample_token, token_logprobs
from refinfer.scheduler import BlockOperation, RequestQueues, RequestState, ScheduledRow
from refinfer.tokenizer import Tokenizer

NUM_KEPT_EVENTS = 1000
"""The log holds the latest so many steps."""


class EngineCore:
    """Runs requests through one scheduler and one runner.

    A step that raises leaves every request where it was, and can be tried again. Whatever stops a call anywhere, as
    Ctrl-C does, nothing is lost but that call: the next one finds that it did not come to its end, keeps the requests
    and their tokens, and has everything else made anew.

    Args:
        scheduler: Who runs.
        runner: What computes logits.
        eos_token_ids: End-of-sequence ids of the model.
        max_model_len: Longest request in tokens, prompt and output together.
        tokenizer: Turns tokens into text; None gives no text, and knows no stop strings.
        speculation: Guesses tokens; None runs one token of each sample at a time.

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
        speculation: Speculation | None = None,
    ) -> None:
        self.scheduler = scheduler
        self.runner = runner
        self.answers: dict[RequestState, Answer] = {}
        self.events: deque[StepEvent] = deque(maxlen=NUM_KEPT_EVENTS)
        self._eos_token_ids = eos_token_ids
        self._max_model_len = max_model_len
        self._tokenizer = tokenizer
        self._speculation = speculation
        self._counters = Counters()
        self._latencies = Latencies()
        self._operations: deque[BlockOperation] = deque()
        self._is_whole = True

    def add(self, state: RequestState) -> Answer:
        """Queues a sample; gives what it will have given."""
        self.recover()
        self._is_whole = False
        self.scheduler.add(state)
        answer = self.answers[state] = Answer(state, self._tokenizer)
        self._latencies.arrive(state, time.perf_counter())
        self._is_whole = True
        return answer

    def abort(self, state: RequestState) -> None:
        """Ends a sample wherever it is: waiting, between two chunks, decoding, preempted or swapped out."""
        self.recover()
        if state not in self.answers:  # it had come to its end in the call that stopped
            return
        self._is_whole = False
        self.answers[state].abort()
        self._finish(state, Finish(FinishReason.ABORT))
        if not self._operations:  # else one of them has failed, which is for the next step to raise
            self._operations.extend(self.scheduler.take_operations())
            self._carry_out_operations()
        self._is_whole = True

    def recover(self) -> None:
        """Make everything but requests and their tokens anew, if the last call stopped before its end.

        Requests that have not ended wait again, in the order in which they arrived. This can itself stop anywhere.
        """
        if self._is_whole:
            return
        ends = {state: answer.recover(partial(self._end_of, state)) for state, answer in self.answers.items()}
        self._operations.clear()
        self.runner.reset()
        self.scheduler.reset(list(ends))
        self._latencies.reset(list(ends), time.perf_counter())
        if self._speculation is not None:
            self._speculation.reset()
        for state, end in ends.items():
            if end is not None:
                self._finish(state, end)
        self._is_whole = True

    def has_unfinished_requests(self) -> bool:
        """Tells whether another step has something to run."""
        self.recover()
        return self.scheduler.has_unfinished_requests()

    def step(self) -> list[StepRow]:
        """Runs one step.

        Returns:
            One row for each sample that advanced.
        """
        self.recover()
        self._is_whole = False
        if self._speculation is not None:
            self._counters.see_drafts(self._speculation.propose(self.scheduler))
        output = self.scheduler.schedule()
        self._counters.see_schedule(output)
        self._operations.extend(output.block_operations)
        try:
            self._carry_out_operations()
            logits = self.runner.execute(output.rows) if output.rows else []
            choices = [self._choose(row, own) for row, own in zip(output.rows, logits, strict=True)]
        except (RefinferError, RuntimeError):  # what is raised on purpose, here or in torch, and not just anywhere
            self._is_whole = True
            raise
        # Nothing has changed up to here, and nothing fails from here on.
        taken = [self._take(row.state, choice) for row, choice in zip(output.rows, choices, strict=True)]
        nums_emitted = [own.num_tokens for own in taken]
        self.scheduler.advance(
            output.rows, [_num_rejected(*pair) for pair in zip(output.rows, nums_emitted, strict=True)]
        )
        if output.rows:
            self._counters.see_step(output, nums_emitted, self.scheduler, self.runner.num_reserved_slots)
        step_rows = []
        for row, choice, own, (num_tokens, end) in zip(output.rows, choices, logits, taken, strict=True):
            if not row.state.is_finished:
                self._end(row.state, end)
                read = own[:num_tokens] if row.draft_token_ids else own
                step_rows.append(StepRow(row.state, tuple(choice.token_ids[:num_tokens]), read))
        emitted = {row.state: row.token_ids for row in step_rows}
        self.events.append(StepEvent.of(self._counters.num_schedules - 1, output, emitted))
        self._is_whole = True
        return step_rows

    def stats(self) -> EngineStats:
        """Gives what the engine has done so far, in numbers."""
        self.recover()
        return self._counters.stats(self.scheduler, self._latencies)

    def _carry_out_operations(self) -> None:
        """Does to the cache what was decided; what fails, and all behind it, is tried again before the next step."""
        while self._operations:
            self.runner.prepare([self._operations[0]])
            self._operations.popleft()

    def _choose(self, row: ScheduledRow, logits: RowLogits) -> Choice:
        """Picks the next token of a row; an error names the request, so that the caller can abort it."""
        try:
            return self._choice(row, logits)
        except RefinferError as error:
            request_id = row.state.request.request_id
            error.values.setdefault("request_id", request_id)
            error.add_note(f"It is request {request_id!r}; abort it, and the others go on.")
            raise

    def _choice(self, row: ScheduledRow, logits: RowLogits) -> Choice:
        """Picks the next token of a row, several where guesses stay, and looks up the log-probabilities they want."""
        state = row.state
        if state.is_finished:
            return Choice([], [], [])
        num_wanted = state.request.params.logprobs
        prompt_logprobs = self._prompt_logprobs(row, logits) if state.wants_prompt_logprobs else []
        if not row.emits:
            return Choice([], [], prompt_logprobs)
        own = logits[len(logits) - len(row.draft_token_ids) - 1 :]
        if row.draft_token_ids and self._speculation is not None:
            token_ids = self._speculation.verify(row, own)
        else:
            token_ids = [sample_token(own[0], state.sample_context(self._eos_token_ids))]
        logprobs = [
            None if num_wanted is None else token_logprobs(logits_row, token_id, num_wanted)
            for logits_row, token_id in zip(own, token_ids, strict=False)
        ]
        return Choice(token_ids, logprobs, prompt_logprobs)

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

    def _take(self, state: RequestState, choice: Choice) -> Taken:
        """Makes what was chosen part of a sample, up to the token with which it has to end."""
        if state.is_finished:
            return Taken(0, None)
        answer = self.answers[state]
        if state.wants_prompt_logprobs:
            answer.push_prompt(choice.prompt_logprobs)
        for place, (token_id, logprobs) in enumerate(zip(choice.token_ids, choice.logprobs, strict=True)):
            state.append(token_id)
            self._latencies.emit(state, time.perf_counter())
            end = answer.push(token_id, self._end_of(state, state.num_output_tokens), logprobs)
            if end is not None:
                return Taken(place + 1, end)
        return Taken(len(choice.token_ids), None)

    def _end_of(self, state: RequestState, num_output_tokens: int) -> Finish | None:
        """Return the end that an output token brings by itself: the one that makes the output so many tokens long."""
        num_tokens = state.num_prompt_tokens + num_output_tokens
        return finish(
            token_id=state.token_ids[num_tokens - 1],
            num_output_tokens=num_output_tokens,
            num_tokens=num_tokens,
            params=state.request.params,
            eos_token_ids=self._eos_token_ids,
            max_model_len=self._max_model_len,
        )

    def _end(self, state: RequestState, end: Finish | None) -> None:
        """Notes how far a sample has come, and ends it where it has to end."""
        if state.wants_prompt_logprobs:
            state.num_scored_tokens = max(state.num_scored_tokens, state.num_computed_tokens)
        if end is not None:
            self._finish(state, end)

    def _finish(self, state: RequestState, end: Finish) -> None:
        self.scheduler.finish(state, end.reason, end.stop_reason)
        self._latencies.leave(state)
        if self._speculation is not None:
            self._speculation.forget(state)
        del self.answers[state]


def _num_rejected(row: ScheduledRow, num_emitted: int) -> int:
    """Gives how many guessed tokens of a row did not stay; the last token emitted has never run."""
    return len(row.draft_token_ids) - max(0, num_emitted - 1) if row.draft_token_ids else 0
