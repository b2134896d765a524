"""Runs a schedule while everything is watched, and gathers every sign that something went wrong, in order."""

import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

import refinfer
from oracle.case import Case
from oracle.drive import Drive, check_guesses
from oracle.errors import InvariantViolation, MismatchError
from oracle.explain.bookkeeping_signs import BookkeepingSigns, pointed_at
from oracle.explain.clues import FirstWrite
from oracle.explain.course import HeatMap
from oracle.explain.emission_signs import EmissionSigns
from oracle.explain.ending_signs import EndingSigns
from oracle.explain.forward_signs import ForwardSigns
from oracle.explain.lone_pass import LonePasses
from oracle.explain.recording import StepRecord
from oracle.explain.sources import PREFIX, PROPOSER, QUEUES, STATIC_POLICY, VERIFIER
from oracle.explain.suspicion import Moment, Suspect, Suspicion
from oracle.explain.watch import Watch
from oracle.explain.writes import Writes
from oracle.lone_answer import SampleRun
from oracle.scenario import Scenario
from oracle.schedule_core import SYMBOLIC_TOKENIZER, model_core, requests_of, symbolic_core
from oracle.symbolic import EOS_TOKEN_IDS
from oracle.symbolic_check import symbolic_answers
from refinfer.engine.core import EngineCore
from refinfer.model import Llama
from refinfer.scheduler import StaticScheduler
from refinfer.tokenizer import Tokenizer

_SUBJECT = Path(refinfer.__file__).parent
_STAGES = ("core.py", "engine.py", "llm.py", "model_runner.py")
"""Files that every step goes through, so that standing in a traceback says nothing against them."""


@dataclass
class WatchedRun:
    """A run and what it shows.

    Attributes:
        scenario: What ran.
        mode: In which mode.
        drive: The run.
        steps: What was seen of it.
        expected: What each sample gives alone.
        signs: What went wrong, the first first.
        write: The first key or value that was computed otherwise.
        heat: The differences.
        step_by_token: When each token came.
        error: What ended the run; None where it came to its end.
    """

    scenario: Scenario
    mode: str
    drive: Drive
    steps: list[StepRecord]
    expected: Sequence[Sequence[SampleRun]]
    signs: list[Suspicion]
    write: FirstWrite | None
    heat: tuple[HeatMap, ...]
    step_by_token: dict[tuple[int, int, int], int]
    error: Exception | None


@dataclass(frozen=True)
class _Parts:
    """What a run is made of."""

    scenario: Scenario
    core: EngineCore
    model: Llama | None
    expected: Sequence[Sequence[SampleRun]]
    eos_token_ids: frozenset[int]
    tokenizer: Tokenizer | None
    passes: LonePasses | None


def watch_case(case: Case, mode: str) -> WatchedRun:
    """Runs a case's schedule on its model.

    Args:
        case: The case.
        mode: The mode.
    """
    scenario = case.scenario
    loaded = case.loaded(batch_invariant=scenario.batch_invariant)
    core = model_core(loaded, scenario, mode, case.lone_samples, case.draft_model)
    eos_token_ids = frozenset(case.eos_token_ids)
    parts = _Parts(scenario, core, loaded.model, case.lone_samples, eos_token_ids, loaded.tokenizer, LonePasses(case))
    return _watch(mode, parts)


def watch_symbolic(scenario: Scenario, mode: str) -> WatchedRun:
    """Runs a schedule on the symbolic model."""
    expected = symbolic_answers(scenario)
    core = symbolic_core(scenario, mode, expected)
    return _watch(mode, _Parts(scenario, core, None, expected, EOS_TOKEN_IDS, SYMBOLIC_TOKENIZER, None))


def _watch(mode: str, parts: _Parts) -> WatchedRun:
    scenario = parts.scenario
    is_static = isinstance(parts.core.scheduler, StaticScheduler)
    watch = Watch(
        parts.core,
        parts.model,
        max_num_seqs=scenario.max_num_seqs,
        token_budget=None if is_static else scenario.engine.max_num_batched_tokens,
        is_policy=not scenario.script and not is_static,
    )
    drive = Drive(parts.core, scenario, requests_of(scenario))
    error = _run(drive, scenario)
    forward = None if parts.passes is None else ForwardSigns(parts.passes, mode)
    writes = None if parts.passes is None else Writes(parts.passes)
    bookkeeping = BookkeepingSigns(scenario)
    emissions = EmissionSigns(scenario, drive, parts.expected, parts.eos_token_ids)
    for step in watch.steps:
        bookkeeping.look_at(step)
        if forward is not None:
            forward.look_at(step)
        for row in step.rows:
            if writes is not None and row.activations and not row.is_ended:
                writes.look_at(row)
        emissions.look_at(step)
    signs = [*bookkeeping.found, *emissions.found, *([] if forward is None else forward.found)]
    if error is None:
        signs += _at_the_end(watch, drive, parts, emissions.last_step)
    else:
        signs.append(sign_of_error(error, len(watch.steps) - 1))
    return WatchedRun(
        scenario,
        mode,
        drive,
        watch.steps,
        parts.expected,
        sorted(signs, key=lambda sign: sign.order),
        None if writes is None else writes.first,
        () if writes is None else writes.maps(),
        emissions.step_by_token,
        error,
    )


def _run(drive: Drive, scenario: Scenario) -> Exception | None:
    """Runs a schedule to its end; gives what ended it before."""
    try:
        drive.run()
        is_own_guess = scenario.engine.speculative == "self" and scenario.batch_invariant
        check_guesses(drive, are_all_right=is_own_guess)
    # Broad on purpose: whatever ends the run is a sign like any other.
    except Exception as error:  # noqa: BLE001
        return error
    return None


def _at_the_end(
    watch: Watch, drive: Drive, parts: _Parts, last_step: dict[tuple[int, int], int]
) -> Iterator[Suspicion]:
    """Gives what is wrong with what came out, and with what is left to be found."""
    scenario = parts.scenario
    is_exact = scenario.batch_invariant or parts.model is None
    for place, (driven, expected) in enumerate(zip(drive.driven, parts.expected, strict=True)):
        ending = EndingSigns(
            scenario.requests[place],
            driven,
            place,
            last_step,
            max_model_len=scenario.max_model_len,
            is_exact=is_exact,
        )
        yield from ending.all(expected, parts.tokenizer, parts.eos_token_ids)
    yield from _published(watch, drive)


def _published(watch: Watch, drive: Drive) -> Iterator[Suspicion]:
    """Gives what a later request with the same tokens would find, and should not."""
    for driven in drive.driven if watch.history is not None else ():
        for state in driven.states:
            what = None if watch.history is None else watch.history.misfound(state.token_ids, driven.request.cache_salt)
            if what is not None:
                suspect = Suspect("prefix cache", "publishing blocks", (*PREFIX, QUEUES[0]))
                yield Suspicion(len(watch.steps), Moment.AFTER, 1, suspect, what)


def sign_of_error(error: Exception, step: int) -> Suspicion:
    """Makes a sign of what was raised, from its message or from where it was raised."""
    what = f"{type(error).__name__}: {error}"
    if isinstance(error, InvariantViolation | MismatchError):
        suspect = _of_message(str(error))
    else:
        frames = traceback.extract_tb(error.__traceback__)[::-1]
        paths = [Path(frame.filename) for frame in frames]
        own = [(path, frame.name) for path, frame in zip(paths, frames, strict=True) if path.is_relative_to(_SUBJECT)]
        files = dict.fromkeys(path.relative_to(_SUBJECT.parent).as_posix() for path, _ in own)
        first = [file for file in files if not file.endswith(_STAGES)]
        named = first or list(files)
        component = PurePath(named[0]).parent.name if named else _SUBJECT.name
        operation = own[0][1] if own else "running a step"
        suspect = Suspect(component, operation, (*first, *(file for file in files if file not in first)))
    return Suspicion(step, Moment.AFTER, 0, suspect, what)


def _of_message(message: str) -> Suspect:
    if "were rejected" in message:
        return Suspect("verifier", "which guessed tokens stay", VERIFIER)
    if "draft" in message or "guess" in message:
        return Suspect("proposer", "guessing", PROPOSER)
    if "was shown" in message:
        return Suspect("detokenizer", "streaming text", ("refinfer/engine/answer.py", *_STREAMING))
    if "requests that" in message and "are left" in message:
        files = (*STATIC_POLICY, "refinfer/scheduler/queues.py", "refinfer/scheduler/continuous.py")
        return Suspect("scheduler", "telling whether a request is left", files)
    if "are left" in message:
        return Suspect("block space", "giving blocks back", _RELEASE)
    return pointed_at(message)


_STREAMING = ("refinfer/sampling/stop_strings.py", "refinfer/tokenizer/detokenizer.py")
_RELEASE = ("refinfer/scheduler/block_space.py", "refinfer/cache/block_table.py", "refinfer/cache/block_pool.py")
