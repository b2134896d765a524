"""Runs a case once, in one mode and perhaps with a bug planted, and keeps what was seen of steps and blocks."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from oracle.case import Case
from oracle.commands.shared import pin_threads, planted
from oracle.drive import Drive
from oracle.errors import ScenarioError
from oracle.explain.course import Step
from oracle.explain.recording import StepRecord
from oracle.explain.watch import Watch
from oracle.inspection.block_watch import BlockWatch
from oracle.lone_answer import SampleRun
from oracle.scenario import Scenario
from oracle.schedule_core import model_core, requests_of, symbolic_core
from oracle.subjects import MODES
from oracle.symbolic_check import SYMBOLIC_MODES, symbolic_answers
from refinfer.engine.core import EngineCore
from refinfer.model import Llama
from refinfer.scheduler import StaticScheduler


@dataclass(frozen=True)
class WatchedCase:
    """What was seen of a run.

    Attributes:
        scenario: What ran.
        mode: In which mode.
        fault: The bug that was planted; None for none.
        steps: Its steps, in full.
        blocks: What became of the pool; None without one.
        drive: The run itself.
        eps: How far apart the next numbers of its dtype lie, at 1; 0 on the symbolic model, which rounds nothing.
        error: What ended it before its end; None if nothing did.
    """

    scenario: Scenario
    mode: str
    fault: str | None
    steps: list[StepRecord]
    blocks: BlockWatch | None
    drive: Drive
    eps: float
    error: Exception | None

    @property
    def course(self) -> tuple[Step, ...]:
        """Its steps, for the reader."""
        return tuple(step.course for step in self.steps if step.course is not None)

    @property
    def prompt_lengths(self) -> list[int]:
        """Tokens of each request's prompt."""
        return [len(request.prompt_token_ids) for request in self.scenario.requests]

    @property
    def title(self) -> str:
        """Names the run in a few words."""
        model = "symbolic model" if self.scenario.is_symbolic else self.scenario.dtype
        return f"{self.mode}, {model}" + ("" if self.fault is None else f", planted: {self.fault}")

    def step(self, number: int) -> StepRecord:
        """Gives a step.

        Raises:
            ScenarioError: The run has no such step.
        """
        if not 0 <= number < len(self.steps):
            message = f"step {number} was not taken; the run has steps 0 to {len(self.steps) - 1}"
            raise ScenarioError(message, step=number, num_steps=len(self.steps))
        return self.steps[number]


def watch(scenario: Scenario, folder: Path | None = None, *, mode: str, fault: str | None = None) -> WatchedCase:
    """Runs a case; whatever ends it before its end is kept, not raised.

    Args:
        scenario: The case.
        folder: The checkpoint, for one that generates none.
        mode: The mode.
        fault: The bug to plant while it runs; None for none.

    Raises:
        ScenarioError: The mode is unknown.
        OracleError: The fault is.
        RefinferError: The model cannot be loaded.
    """
    modes = SYMBOLIC_MODES if scenario.is_symbolic else MODES
    if mode not in modes:
        message = f"mode {mode!r} is unknown for this case; choose among {', '.join(modes)}"
        raise ScenarioError(message, mode=mode)
    pin_threads(folder)
    with planted(fault):
        core, model, eps = _core(scenario, folder, mode)
        is_static = isinstance(core.scheduler, StaticScheduler)
        seen = Watch(
            core,
            model,
            max_num_seqs=scenario.max_num_seqs,
            token_budget=None if is_static else scenario.engine.max_num_batched_tokens,
            is_policy=not scenario.script and not is_static,
        )
        blocks = None if seen.history is None else BlockWatch(core, seen.history)
        drive = Drive(core, scenario, requests_of(scenario))
        error: Exception | None = None
        try:
            drive.run()
        # Broad on purpose: how a run ends is one of the things to be shown.
        except Exception as raised:  # noqa: BLE001
            error = raised
    return WatchedCase(scenario, mode, fault, seen.steps, blocks, drive, eps, error)


def _core(scenario: Scenario, folder: Path | None, mode: str) -> tuple[EngineCore, Llama | None, float]:
    if scenario.is_symbolic:
        return symbolic_core(scenario, mode, symbolic_answers(scenario)), None, 0.0
    case = Case(scenario, folder)
    loaded = case.loaded(batch_invariant=scenario.batch_invariant)
    # Only a script has to be told what comes; a model that a bug makes raise alone still shows its steps.
    expected: Sequence[Sequence[SampleRun]] = ()
    if scenario.engine.speculative == "scripted":
        expected = case.lone_samples
    core = model_core(loaded, scenario, mode, expected, case.draft_model)
    return core, loaded.model, torch.finfo(loaded.model.dtype).eps
