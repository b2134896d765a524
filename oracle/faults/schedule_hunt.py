"""Plants a fault, runs schedules on it, and tells which one caught it: answers, or the state between two steps."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from oracle.choosers import RandomChooser
from oracle.drive import Drive
from oracle.errors import CheckFailed, FaultNotCaught, LogitsMismatch
from oracle.faults.registry import Area, Fault
from oracle.rejection_law import check_rejection_law, check_sampled_law
from oracle.sampling_effects import observed_effects
from oracle.scenario import Scenario
from oracle.schedule_core import requests_of, symbolic_core
from oracle.schedule_properties import CHECKPOINTS, ModelRuns
from oracle.schedule_strategies import choose_model_schedule, choose_symbolic_schedule
from oracle.state_watch import StateWatch
from oracle.subjects import MODES, options_of
from oracle.symbolic import EOS_TOKEN_IDS, VOCAB_SIZE
from oracle.symbolic_check import JOINING_MODES, errors_as_failures, run_symbolic, symbolic_answers

NEEDS_A_MODEL = (Area.PAGED, Area.DRAFTING)
"""Areas whose code the symbolic model does not run."""

_NEED_GUESSES = frozenset({"speculation", "draft model"})

SYMBOLIC_MODES = JOINING_MODES
"""Faults are hunted in these, since the others run nothing that does not run here as well."""

MODEL_MODES = tuple(mode for mode in MODES if options_of(mode)["cache"] == "paged")
"""Likewise for faults whose code the symbolic model does not run."""


@dataclass(frozen=True)
class ScheduleCatch:
    """How schedules caught a fault.

    Attributes:
        fault: The fault.
        way: "answers" or "state", and the mode.
        num_schedules: Schedules until then.
        message: What was said.
        scenario: The schedule.
    """

    fault: Fault
    way: str
    num_schedules: int
    message: str
    scenario: Scenario


def hunt_schedules(fault: Fault, *, num_schedules: int, seed: int = 0) -> ScheduleCatch:
    """Plants a fault and runs schedules until one fails.

    Args:
        fault: What to plant.
        num_schedules: Most schedules that are tried.
        seed: The same seed tries the same ones.

    Raises:
        FaultNotCaught: Every schedule passed.
    """
    choose = RandomChooser(seed)
    runs = ModelRuns()
    needs_model = fault.area in NEEDS_A_MODEL
    is_speculative = not _NEED_GUESSES.isdisjoint(fault.needs) or fault.area in (Area.SPECULATIVE, Area.DRAFTING)
    for number in range(1, num_schedules + 1):
        if needs_model:
            scenario = choose_model_schedule(choose, CHECKPOINTS, batch_invariant=True, is_speculative=is_speculative)
        else:
            scenario = choose_symbolic_schedule(choose, is_speculative=is_speculative)
        with fault.planted():
            for way, message in _failures(scenario, runs, needs_model=needs_model):
                return ScheduleCatch(fault, way, number, message, scenario)
    message = f"fault {fault.name} ({fault.bug}) passed {num_schedules} schedules unseen"
    raise FaultNotCaught(message, fault=fault.name, num_cases=num_schedules)


def hunt_law(fault: Fault, *, num_cases: int, seed: int = 0) -> str:
    """Plants a fault and checks the law of verified tokens; gives what was said.

    Args:
        fault: What to plant.
        num_cases: Most pairs of distributions that are tried, and as many logits under random parameters.
        seed: The same seed tries the same ones.

    Raises:
        FaultNotCaught: The law holds.
    """
    try:
        with fault.planted():
            check_rejection_law(num_cases, seed)
            check_sampled_law(num_cases, seed)
    except LogitsMismatch as error:
        return str(error)
    message = f"fault {fault.name} ({fault.bug}) passed {num_cases} pairs of distributions unseen"
    raise FaultNotCaught(message, fault=fault.name, num_cases=num_cases)


def _failures(scenario: Scenario, runs: ModelRuns, *, needs_model: bool) -> Iterator[tuple[str, str]]:
    for mode in MODEL_MODES if needs_model else SYMBOLIC_MODES:
        try:
            if needs_model:
                runs.run(scenario, mode)
            else:
                observed_effects(scenario, run_symbolic(scenario, mode), EOS_TOKEN_IDS)
        except CheckFailed as error:
            yield f"answers in {mode}", str(error)
    try:
        run_watched(scenario)
    except CheckFailed as error:
        yield "state", str(error)


def run_watched(scenario: Scenario) -> Drive:
    """Runs a schedule on the symbolic model, by the shipped policy alone, and checks the state around every step.

    Raises:
        CheckFailed: Something does not hold, or the engine raised an error.
    """
    plain = _on_symbolic_model(replace(scenario, script=()))
    expected = None if plain.engine.speculative is None else symbolic_answers(plain)
    drive = Drive(symbolic_core(plain, "paged", expected), plain, requests_of(plain))
    StateWatch(
        drive.core,
        max_num_seqs=scenario.max_num_seqs,
        token_budget=scenario.engine.max_num_batched_tokens,
        max_model_len=scenario.max_model_len,
    )
    with errors_as_failures("paged"):
        drive.run()
    return drive


def _on_symbolic_model(scenario: Scenario) -> Scenario:
    """Gives the same schedule for the symbolic model, in whose small vocabulary ids of a larger one are folded."""

    def folded(token_ids: Iterable[int]) -> tuple[int, ...]:
        return tuple(token_id % VOCAB_SIZE for token_id in token_ids)

    requests = []
    for request in scenario.requests:
        own = request.sampling
        ids, biases = zip(*own.logit_bias, strict=True) if own.logit_bias else ((), ())
        sampling = replace(
            own,
            stop_token_ids=folded(own.stop_token_ids),
            logit_bias=tuple(zip(folded(ids), biases, strict=True)),
        )
        requests.append(replace(request, prompt_token_ids=folded(request.prompt_token_ids), sampling=sampling))
    return replace(scenario, requests=tuple(requests), is_symbolic=True, checkpoint=None)
