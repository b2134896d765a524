"""Where the examples of a kill matrix come from: each lane makes one after another, and looks at it in its own ways."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache

from oracle.case import Case
from oracle.check import DRAWS_PER_CASE, MAX_CASES_PER_CHECKPOINT
from oracle.checkpoints import CheckpointSpec
from oracle.choosers import RandomChooser
from oracle.drive import Drive
from oracle.errors import CheckFailed, InvariantViolation, LogitsMismatch, NeverEnds, OutcomeMismatch, TextMismatch
from oracle.faults.schedule_hunt import MODEL_MODES, SYMBOLIC_MODES, run_watched
from oracle.lone_answer import SampleRun
from oracle.matrix.case_looks import CASE_LOOKS, look_at_case, seen_in_error
from oracle.matrix.kills import RULES
from oracle.matrix.looks import LOOKS, EndedRun, look_at
from oracle.rejection_law import check_rejection_law, check_sampled_law
from oracle.scenario import Scenario
from oracle.schedule_core import SYMBOLIC_TOKENIZER, model_core, requests_of, symbolic_core
from oracle.schedule_properties import CHECKPOINTS
from oracle.schedule_strategies import choose_model_schedule, choose_symbolic_schedule
from oracle.search import StopDrawing, draw_scenarios
from oracle.strategies import scenarios
from oracle.symbolic import EOS_TOKEN_IDS
from oracle.symbolic_check import check_run, symbolic_answers
from refinfer.engine import LoadedModel

Sightings = Iterator[tuple[str, str]]
"""Ways of looking that saw something, each with what it says."""


class Lane(ABC):
    """Makes examples, and looks at them.

    Attributes:
        name: How the matrix names it.
        shows: The ways of looking, and usual rules, that it has.
        scenario: The last example, where it can be run again by itself.
    """

    name: str
    shows: frozenset[str]
    scenario: Scenario | None = None

    @abstractmethod
    def next_example(self, wanted: frozenset[str]) -> Sightings | None:
        """Makes the next example and gives what is seen on it, of the ways that are wanted; None if there is none."""


def driven_to_its_end(drive: Drive) -> tuple[bool, list[tuple[str, str]]]:
    """Runs a schedule; tells whether every request came to its end, and what was seen on the way."""
    try:
        drive.run()
    except InvariantViolation as error:  # something is left when all have ended
        return True, [("lifecycle", str(error))]
    except TextMismatch as error:
        return False, [("text", str(error))]
    except OutcomeMismatch as error:
        return False, [("lifecycle" if isinstance(error, NeverEnds) else "contract", str(error))]
    # Broad on purpose: whatever an engine raises on a legal schedule is its failure.
    except Exception as error:  # noqa: BLE001
        return False, [seen_in_error(error)]
    return True, []


class SymbolicLane(Lane):
    """Schedules on the symbolic model: answers and what is kept, and the state between two steps."""

    name = "symbolic schedules"
    shows = frozenset({"symbolic", "state", "lifecycle", "distribution", "contract", "text"})

    def __init__(self, seed: int) -> None:
        self._choose = RandomChooser(seed)

    def next_example(self, wanted: frozenset[str]) -> Sightings:
        """Makes the next schedule, and runs it over each cache and under watch."""
        scenario = self.scenario = choose_symbolic_schedule(self._choose)
        try:
            expected = symbolic_answers(scenario)
        # Broad on purpose: sampling has a fault, and may raise anything.
        except Exception as error:  # noqa: BLE001
            yield seen_in_error(error)
            return
        for mode in SYMBOLIC_MODES:
            yield from self._look(scenario, mode, expected, wanted)
        if "state" in wanted:
            try:
                run_watched(scenario)
            except CheckFailed as error:
                yield "state", str(error)

    def _look(
        self, scenario: Scenario, mode: str, expected: list[list[SampleRun]], wanted: frozenset[str]
    ) -> Sightings:
        drive = Drive(symbolic_core(scenario, mode, expected), scenario, requests_of(scenario))
        has_ended, seen = driven_to_its_end(drive)
        yield from seen
        if not has_ended:
            yield "symbolic", seen[0][1]
            return
        if "symbolic" in wanted:
            try:
                check_run(drive, expected, mode)
            except (InvariantViolation, OutcomeMismatch) as error:
                yield "symbolic", str(error)
        length = scenario.max_model_len
        run = EndedRun(drive, scenario.requests, expected, EOS_TOKEN_IDS, SYMBOLIC_TOKENIZER, length, mode)
        yield from look_at(run, wanted & self.shows)


class ModelLane(Lane):
    """Schedules on tiny models, in the invariant manner."""

    name = "model schedules"
    shows = frozenset({*LOOKS, *RULES, "lifecycle"})

    def __init__(self, seed: int) -> None:
        self._choose = RandomChooser(seed)
        self._loaded: dict[CheckpointSpec | None, dict[bool, LoadedModel]] = {}

    def next_example(self, wanted: frozenset[str]) -> Sightings:
        """Makes the next schedule, and runs it with each reader of the paged cache."""
        scenario = self.scenario = choose_model_schedule(self._choose, CHECKPOINTS, batch_invariant=True)
        case = Case(scenario, loaded_by_manner=self._loaded.setdefault(scenario.checkpoint, {}))
        try:
            loaded, expected = case.loaded(batch_invariant=True), case.lone_samples
        # Broad on purpose: what a model raises when it is loaded, or alone, is a failure of its own.
        except Exception as error:  # noqa: BLE001
            yield seen_in_error(error)
            return
        for mode in MODEL_MODES:
            core = model_core(loaded, scenario, mode, expected, case.draft_model)
            drive = Drive(core, scenario, requests_of(scenario))
            has_ended, seen = driven_to_its_end(drive)
            yield from seen
            if has_ended:
                eos_token_ids = frozenset(case.eos_token_ids)
                length = scenario.max_model_len
                run = EndedRun(drive, scenario.requests, expected, eos_token_ids, loaded.tokenizer, length, mode, case)
                yield from look_at(run, wanted)


class CaseLane(Lane):
    """Generated checkpoints, batches and texts, held to the properties of `python -m oracle check`."""

    name = "cases"
    shows = frozenset({*CASE_LOOKS, *RULES, "lifecycle", "poison"})

    def __init__(self, seed: int, num_cases: int) -> None:
        self._cases = iter(generated_cases(seed, num_cases))

    def next_example(self, wanted: frozenset[str]) -> Sightings | None:
        """Takes the next case, and runs it in every mode; None after the last one."""
        scenario = next(self._cases, None)
        if scenario is None:
            return None
        self.scenario = scenario
        return look_at_case(Case(scenario), wanted)


class LawLane(Lane):
    """Pairs of distributions, for which the law of verified tokens is summed up."""

    name = "pairs of distributions"
    shows = frozenset({"distribution"})

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._num_pairs = 0

    def next_example(self, wanted: frozenset[str]) -> Sightings:  # noqa: ARG002 - it has one way
        """Draws the next pair."""
        self._num_pairs += 1
        try:
            check_rejection_law(1, self._seed + self._num_pairs)
            check_sampled_law(1, self._seed + self._num_pairs)
        except LogitsMismatch as error:
            yield "distribution", str(error)


@lru_cache(maxsize=2)
def generated_cases(seed: int, number: int) -> Sequence[Scenario]:
    """Draws different cases, at most two on one checkpoint, as `python -m oracle check` does; nothing of them is run.

    Args:
        seed: The same seed draws the same cases.
        number: How many, or somewhat fewer.
    """
    cases: dict[Scenario, None] = {}
    num_by_checkpoint: Counter[CheckpointSpec | None] = Counter()

    def keep(scenario: Scenario) -> None:
        if num_by_checkpoint[scenario.checkpoint] < MAX_CASES_PER_CHECKPOINT and scenario not in cases:
            cases[scenario] = None
            num_by_checkpoint[scenario.checkpoint] += 1
        if len(cases) >= number:
            raise StopDrawing

    draw_scenarios(scenarios(), keep, num_examples=DRAWS_PER_CASE * number, seed=seed)
    return tuple(cases)
