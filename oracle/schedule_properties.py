"""Does a request give in any schedule what it gives alone, without a cache?"""

from oracle.case import Case
from oracle.checkpoints import CheckpointSpec
from oracle.drive import Drive, check_guesses
from oracle.errors import CheckFailed
from oracle.observation import Observation
from oracle.sampling_effects import observed_effects
from oracle.scenario import Scenario
from oracle.schedule_compare import compare_request
from oracle.schedule_core import model_core, requests_of
from oracle.schedule_nearly import compare_request_nearly
from oracle.schedule_witness import features_of
from refinfer.engine import LoadedModel

CHECKPOINTS = (
    CheckpointSpec(num_layers=1, vocab_size=97, eos_token_ids=tuple(range(2, 97, 7))),
    CheckpointSpec(seed=1, num_layers=2, num_heads=4, num_kv_heads=2, vocab_size=288, with_tokenizer=True),
    CheckpointSpec(
        seed=2,
        num_layers=2,
        num_heads=2,
        num_kv_heads=1,
        head_dim=20,
        rope_type="llama3",
        original_max_position_embeddings=32,
        eos_token_ids=tuple(range(1, 288, 11)),
        vocab_size=288,
        with_tokenizer=True,
    ),
    CheckpointSpec(seed=3, num_layers=1, num_heads=4, num_kv_heads=1, head_dim=24, tie_word_embeddings=True),
)
"""Tiny models that schedules run on: every ratio of heads, and RoPE in bands."""


def check_schedules(case: Case, mode: str) -> Observation:
    """Runs the scenario's schedule, and holds every request to itself alone: the same bits, or up to near ties."""
    observation, _ = observe_schedule(case, mode)
    return observation


def observe_schedule(case: Case, mode: str) -> tuple[Observation, Drive]:
    """Runs a schedule; gives what was seen, and the run itself.

    Raises:
        MismatchError: A request gave something else than alone.
        InvariantViolation: Something is still held when all have ended.
    """
    scenario = case.scenario
    loaded = case.loaded(batch_invariant=scenario.batch_invariant)
    core = model_core(loaded, scenario, mode, case.lone_samples, case.draft_model)
    drive = Drive(core, scenario, requests_of(scenario))
    drive.run()
    is_own_guess = scenario.engine.speculative == "self" and scenario.batch_invariant
    check_guesses(drive, are_all_right=is_own_guess)
    observation = Observation(witnessed=bool(features_of(drive)) or len(scenario.requests) > 1)
    for place, (driven, expected) in enumerate(zip(drive.driven, case.lone_samples, strict=True)):
        what = f"{mode}, request {place}"
        if scenario.batch_invariant:
            compare_request(driven, expected, loaded.tokenizer, what)
        else:
            compare_request_nearly(observation, case, driven, expected, what)
        for own in driven.samples():
            observation.num_rows += len(own.logits)
            observation.num_positions += len(own.logits)
    observation.num_schedules = 1
    return observation, drive


class ModelRuns:
    """Runs schedules on tiny models, each of which is loaded once."""

    def __init__(self) -> None:
        self._loaded: dict[tuple[CheckpointSpec | None, str], dict[bool, LoadedModel]] = {}
        self._last: Case | None = None

    def run(self, scenario: Scenario, mode: str) -> tuple[Drive, set[str]]:
        """Runs a schedule in a mode; gives the run and the effects that were seen.

        Raises:
            CheckFailed: A request gave something else than alone, or the subject raised an error.
        """
        if self._last is None or self._last.scenario is not scenario:
            loaded = self._loaded.setdefault((scenario.checkpoint, scenario.dtype), {})
            self._last = Case(scenario, loaded_by_manner=loaded)
        try:
            _, drive = observe_schedule(self._last, mode)
            return drive, observed_effects(scenario, drive, frozenset(self._last.eos_token_ids))
        # Broad on purpose: whatever a subject raises is its failure.
        except Exception as error:
            message = f"{mode}: {type(error).__name__}: {error}"
            raise CheckFailed(message) from error
