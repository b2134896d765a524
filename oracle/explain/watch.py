"""Watches an engine's core from outside while it runs: nothing of it is changed but who is called first."""

from collections.abc import Sequence
from contextlib import ExitStack

import torch
from torch import Tensor

from oracle.activations import ActivationCollector
from oracle.errors import InvariantViolation
from oracle.explain.attention_watch import Call, reads_of_rows, watching_attention
from oracle.explain.block_history import BlockHistory
from oracle.explain.course import Step, StepRow
from oracle.explain.recording import RowRecord, StepRecord, key_of, name_of
from oracle.invariants import check_blocks, check_core, check_output
from refinfer.engine.answer import Answer
from refinfer.engine.answer import StepRow as CoreRow
from refinfer.engine.core import EngineCore
from refinfer.engine.model_runner import RecomputeRunner
from refinfer.errors import InvariantError
from refinfer.model import Llama
from refinfer.model.model_input import RowLogits
from refinfer.scheduler import BlockOperation, CopyBlock, RequestState, ScheduledRow, SchedulerOutput, SwapIn
from refinfer.scheduler.request import held_blocks

INPUT_IDS, POSITION_IDS = "input_ids", "position_ids"
_TOLD = {INPUT_IDS: "model", POSITION_IDS: "model.rotary_emb"}


def extra_inputs(model: Llama) -> tuple[str, ...]:
    """Gives the modules whose input is kept as well: what a pass is told, and what goes into the last product."""
    layers = range(model.config.num_layers)
    return (*_TOLD.values(), *(f"model.layers.{layer}.mlp.down_proj" for layer in layers))


class Watch:
    """Stands before scheduler, runner and step of a core.

    Args:
        core: The core, before its first request.
        model: What it runs; None for the symbolic model.
        max_num_seqs: Most requests in one step.
        token_budget: Most tokens in one step; None for no limit.
        is_policy: Whether the shipped policy alone decides, so that its own promises can be asked for.

    Attributes:
        steps: What was seen, step by step.
        history: What the pool should hold; None without one.
    """

    def __init__(
        self, core: EngineCore, model: Llama | None, *, max_num_seqs: int, token_budget: int | None, is_policy: bool
    ) -> None:
        self.steps: list[StepRecord] = []
        space = core.scheduler.blocks
        self.history = None if space is None else BlockHistory(space)
        self._core = core
        self._model = model
        self._limits = (max_num_seqs, token_budget)
        self._is_policy = is_policy
        self._output = SchedulerOutput(())
        self._arrived: list[RequestState] = []
        self._aborted: list[RequestState] = []
        self._operations: list[BlockOperation] = []
        self._originals = (core.step, core.add, core.abort, core.scheduler.schedule)
        self._runs = (core.runner.prepare, core.runner.execute)
        # No switch for being watched in `refinfer`, on purpose: the methods of this one core are replaced.
        core.step, core.add, core.abort = self._step, self._add, self._abort  # type: ignore[method-assign]
        core.scheduler.schedule = self._schedule  # type: ignore[method-assign]
        core.runner.prepare, core.runner.execute = self._prepare, self._execute  # type: ignore[method-assign]

    def _add(self, state: RequestState) -> Answer:
        self._arrived.append(state)
        return self._originals[1](state)

    def _abort(self, state: RequestState) -> None:
        self._aborted.append(state)
        self._originals[2](state)

    def _step(self) -> list[CoreRow]:
        record = StepRecord(len(self.steps))
        self.steps.append(record)
        self._output = SchedulerOutput(())
        self._check_state(record)
        emitted: list[CoreRow] = []
        try:
            emitted = self._originals[0]()
        except Exception as error:
            record.error = error
            raise
        finally:
            self._take(record, emitted)
        return emitted

    def _check_state(self, record: StepRecord) -> None:
        core, space = self._core, self._core.scheduler.blocks
        try:
            if self._is_policy:
                check_core(core, max_num_seqs=self._limits[0])
            elif space is not None:
                running = [state for state in core.scheduler.running if not state.is_finished]
                check_blocks(space, running, list(core.scheduler.waiting))
        except (InvariantViolation, InvariantError) as error:
            record.violations.append(str(error))

    def _schedule(self) -> SchedulerOutput:
        output = self._output = self._originals[3]()
        if self._is_policy and output.rows:
            try:
                check_output(output, self._core.scheduler, *self._limits)
            except (InvariantViolation, InvariantError) as error:
                self.steps[-1].violations.append(str(error))
        if self.history is not None:
            for state, _ in output.preempted:
                self.history.forget(state)
        return output

    def _prepare(self, operations: Sequence[BlockOperation]) -> None:
        self._operations.extend(operations)
        if self.history is not None:
            self.history.carry_out(operations, len(self.steps))
        self._runs[0](operations)

    def _execute(self, rows: Sequence[ScheduledRow]) -> list[RowLogits]:
        record = self.steps[-1]
        if self.history is not None:
            record.violations += self.history.collisions(rows)
            for row in rows:  # before anything is read, as a block that two write to shows
                self.history.write(row, record.number)
        record.rows = [self._row(record.number, row) for row in rows]
        logits = self._run(record, rows)
        for own, its_logits in zip(record.rows, logits, strict=False):
            own.logits = its_logits.copy()
        return logits

    def _run(self, record: StepRecord, rows: Sequence[ScheduledRow]) -> list[RowLogits]:
        model = self._model
        if model is None:
            return self._runs[1](rows)
        with ExitStack() as stack:
            collector = stack.enter_context(ActivationCollector(model, input_paths=extra_inputs(model)))
            calls = stack.enter_context(watching_attention(model))
            try:
                return self._runs[1](rows)
            finally:
                _take_activations(record, collector.records, calls, [row.num_logits for row in rows])

    def _row(self, step: int, row: ScheduledRow) -> RowRecord:
        state = row.state
        request, sample = key_of(state)
        start = state.num_computed_tokens
        own = RowRecord(
            step,
            request,
            sample,
            0 if isinstance(self._core.runner, RecomputeRunner) else start,
            (*state.token_ids[:start], *row.token_ids),
            tuple(state.token_ids),
            len(row.draft_token_ids),
            is_ended=state.is_finished,
        )
        if self.history is not None:
            own.origins = self.history.origins(row)
            own.kept = self.history.read(row)
            own.block_size = self.history.block_size
            own.block_ids = tuple(held_blocks(state).table.block_ids)
        return own

    def _take(self, record: StepRecord, emitted: Sequence[CoreRow]) -> None:
        tokens = {key_of(row.state): row.token_ids for row in emitted}
        for row in record.rows:
            row.emitted = tokens.get((row.request, row.sample), ())
        if self.history is not None:
            record.violations += self.history.lost
            self.history.lost = []
            self.history.end_step()
        record.course = self._course(record, emitted)
        self._arrived, self._aborted, self._operations = [], [], []

    def _course(self, record: StepRecord, emitted: Sequence[CoreRow]) -> Step:
        output, space = self._output, self._core.scheduler.blocks
        blocks: tuple[int | None, int | None, int | None] = (None, None, None)
        if space is not None:
            free, idle = space.pool.num_free_blocks, space.pool.num_idle_blocks
            blocks = (space.pool.num_blocks - free - idle, idle, free)
        return Step(
            record.number,
            tuple(
                StepRow(row.request, row.sample, row.start, row.end - row.start, row.num_guessed, row.emitted)
                for row in record.rows
            ),
            arrived=tuple(dict.fromkeys(key_of(state)[0] for state in self._arrived)),
            admitted=tuple(map(name_of, output.admitted)),
            preempted=tuple(f"{name_of(state)} {how}" for state, how in output.preempted),
            swapped_in=tuple(name_of(each.state) for each in self._operations if isinstance(each, SwapIn)),
            finished=tuple(
                f"{name_of(row.state)} {row.state.finish_reason}" for row in emitted if row.state.is_finished
            ),
            aborted=tuple(map(name_of, self._aborted)),
            copied_blocks=tuple((each.source, each.target) for each in self._operations if isinstance(each, CopyBlock)),
            num_used_blocks=blocks[0],
            num_cached_blocks=blocks[1],
            num_free_blocks=blocks[2],
        )


def _take_activations(
    record: StepRecord, records: dict[str, Tensor], calls: dict[int, list[Call]], nums_logits: Sequence[int]
) -> None:
    """Cuts what was recorded of packed tokens into the rows' own parts."""
    named = {name: records[f"{path}.input"] for name, path in _TOLD.items() if f"{path}.input" in records}
    named |= {name: own for name, own in records.items() if name.removesuffix(".input") not in _TOLD.values()}
    lengths = [row.end - row.start for row in record.rows]
    record.num_told = len(named[INPUT_IDS]) if INPUT_IDS in named else 0
    if record.num_told != sum(lengths):
        return
    for name, activation in named.items():
        is_whole = len(activation) == record.num_told
        if not is_whole and len(activation) != sum(nums_logits):
            continue
        for row, piece in zip(
            record.rows, torch.split(activation, lengths if is_whole else list(nums_logits)), strict=True
        ):
            row.activations[name] = piece
    for layer, own_calls in calls.items():
        for row, reads in zip(record.rows, reads_of_rows(own_calls), strict=False):
            row.reads[layer] = reads
