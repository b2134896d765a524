"""Holds one schedule on the symbolic model to what each request gives alone, and every written value to its tokens."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from oracle.drive import Drive, check_guesses
from oracle.errors import CheckFailed, InvariantViolation, MismatchError
from oracle.lone_answer import SampleRun, Surroundings, answer_alone
from oracle.sampling_effects import observed_effects
from oracle.scenario import Scenario
from oracle.schedule_compare import compare_request
from oracle.schedule_core import SYMBOLIC_TOKENIZER, requests_of, symbolic_core
from oracle.symbolic import EOS_TOKEN_IDS, PrefixHash, logits_of
from oracle.symbolic_runners import SymbolicPagedRunner, WrittenToken
from refinfer.config.engine_config import CACHES, CONTINUOUS_CACHES
from refinfer.scheduler import RequestState

SYMBOLIC_MODES = CACHES
"""Ways of keeping values that the symbolic model has: all that `refinfer` has."""

JOINING_MODES = CONTINUOUS_CACHES[::-1]
"""Those in which requests join and leave between two steps, and the one with the most parts first."""

EFFECTS_IN_ONE_OF = 8
"""Sampling in plain Python costs as much as the rest, so that not every schedule is held to it."""


class _Prefix:
    """What is kept of one request's tokens, followed as they come."""

    def __init__(self, salt: str | None) -> None:
        self._hash = PrefixHash(salt=salt)
        self._values: list[bytes] = []

    def __call__(self, token_ids: Sequence[int], num_wanted: int) -> np.ndarray:
        """Gives the logits after so many of the last tokens."""
        values = self._values
        for position in range(len(values), len(token_ids)):
            values.append(self._hash.push(token_ids[position], position))
        return logits_of(values[len(token_ids) - num_wanted : len(token_ids)])


def symbolic_answers(scenario: Scenario) -> list[list[SampleRun]]:
    """Gives what every sample of every request gives alone; no cache, no scheduler and no engine is asked."""
    around = Surroundings(EOS_TOKEN_IDS, scenario.max_model_len, SYMBOLIC_TOKENIZER)
    return [
        [answer_alone(request, index, _Prefix(request.cache_salt), around) for index in range(request.params.n)]
        for request in requests_of(scenario)
    ]


def run_symbolic(scenario: Scenario, mode: str, expected: Sequence[Sequence[SampleRun]] | None = None) -> Drive:
    """Runs a schedule, and holds it to its requests alone; gives the run, for its witness.

    Raises:
        CheckFailed: Something differs, or the engine raised an error.
    """
    expected = symbolic_answers(scenario) if expected is None else expected
    drive = Drive(symbolic_core(scenario, mode, expected), scenario, requests_of(scenario))
    with errors_as_failures(mode):
        drive.run()
        check_run(drive, expected, mode)
    return drive


def check_run(drive: Drive, expected: Sequence[Sequence[SampleRun]], mode: str) -> None:
    """Holds a run that has ended to its requests alone, and every value that was kept to its tokens.

    Raises:
        OutcomeMismatch: A request gave something else than alone.
        InvariantViolation: What was kept, or could be found by a later request, belongs to other tokens.
    """
    check_written(drive.core.runner.written)  # type: ignore[attr-defined]  # a symbolic runner has it
    check_published(drive)
    check_guesses(drive)
    for place, (driven, alone) in enumerate(zip(drive.driven, expected, strict=True)):
        compare_request(driven, alone, SYMBOLIC_TOKENIZER, f"{mode}, request {place}")


@contextmanager
def errors_as_failures(what: str) -> Iterator[None]:
    """Makes a failed check of everything that goes wrong within.

    Args:
        what: How messages name the subject, where its own error does not.

    Raises:
        CheckFailed: Something differs, or the engine raised an error.
    """
    try:
        yield
    except (MismatchError, InvariantViolation) as error:
        raise CheckFailed(str(error)) from error
    # Broad on purpose: whatever an engine raises on a legal schedule is its failure.
    except Exception as error:
        message = f"{what}: {type(error).__name__}: {error}"
        raise CheckFailed(message) from error


def run_with_effects(scenario: Scenario, mode: str) -> tuple[Drive, set[str]]:
    """Runs a schedule as `run_symbolic` does, and holds some of them to plain sampling as well.

    Raises:
        CheckFailed: Something differs, or a parameter has not the effect that it should have.
    """
    drive = run_symbolic(scenario, mode)
    is_chosen = sum(map(sum, (spec.prompt_token_ids for spec in scenario.requests))) % EFFECTS_IN_ONE_OF == 0
    return drive, observed_effects(scenario, drive, EOS_TOKEN_IDS) if is_chosen else set()


def check_written(written: Sequence[WrittenToken]) -> None:
    """Holds what was kept of every token that ran to the tokens that its request has up to there.

    Raises:
        InvariantViolation: A token was run after something else than its own request's tokens before it.
    """
    values_by_state: dict[RequestState, list[bytes]] = {}
    for state, position, value in written:
        values = values_by_state.get(state)
        if values is None:
            prefix = PrefixHash(salt=state.request.cache_salt)
            values = [prefix.push(token_id, place) for place, token_id in enumerate(state.token_ids)]
            values_by_state[state] = values
        if values[position] != value:
            message = (
                f"request {state.request.request_id}, sample {state.sample_index}: what was read at position "
                f"{position} was not what its own tokens wrote"
            )
            raise InvariantViolation(message, position=position)


def check_published(drive: Drive) -> None:
    """Holds what can be found by the tokens of each request to what those tokens write.

    Raises:
        InvariantViolation: A later request with the same tokens would read something else.
    """
    runner, space = drive.core.runner, drive.core.scheduler.blocks
    if not isinstance(runner, SymbolicPagedRunner) or space is None or space.prefix is None:
        return
    for driven in drive.driven:
        salt = driven.request.cache_salt
        for state in driven.states:
            block_ids, num_tokens = space.prefix.match(state.token_ids, salt, state.num_tokens)
            prefix = PrefixHash(salt=salt)
            expected = [prefix.push(token_id, place) for place, token_id in enumerate(state.token_ids[:num_tokens])]
            if runner.values_in(block_ids)[:num_tokens] != expected:
                message = (
                    f"blocks {block_ids} are found by the first {num_tokens} tokens of request "
                    f"{state.request.request_id}, sample {state.sample_index}, and hold something else"
                )
                raise InvariantViolation(message, block_ids=block_ids)
