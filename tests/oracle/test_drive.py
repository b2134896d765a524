"""A drive lets requests arrive and go when the scenario says, and looks at what is left."""

from dataclasses import replace

import pytest

from oracle import drive as drive_module
from oracle.drive import Drive, check_all_given_back, check_guesses
from oracle.engine_spec import EngineSpec
from oracle.errors import InvariantViolation, OutcomeMismatch
from oracle.faults import FAULTS
from oracle.sampling_spec import SamplingSpec
from oracle.scenario import RequestSpec, Scenario
from oracle.schedule_core import requests_of, symbolic_core
from oracle.scripted_scheduler import Verified
from oracle.symbolic_check import symbolic_answers

TWO = Scenario(
    (RequestSpec((1, 2, 3), 6, ignore_eos=True), RequestSpec((2,), 6, ignore_eos=True, arrival=3)),
    checkpoint=None,
    is_symbolic=True,
)


def driven(scenario, mode="paged"):
    expected = None if scenario.engine.speculative is None else symbolic_answers(scenario)
    drive = Drive(symbolic_core(scenario, mode, expected), scenario, requests_of(scenario))
    drive.run()
    return drive


def guessing(*guesses, **sampling):
    """Both requests, with guesses by a script."""
    engine = EngineSpec(speculative="scripted", num_speculative_tokens=3, guesses=guesses)
    requests = tuple(replace(request, sampling=SamplingSpec(**sampling)) for request in TWO.requests)
    return replace(TWO, engine=engine, requests=requests)


def test_requests_arrive_at_their_step():
    drive = driven(TWO)
    assert drive.num_steps == 3 + 6
    assert [len(own.samples()[0].output.token_ids) for own in drive.driven] == [6, 6]


def test_an_abort_ends_a_request_and_leaves_its_neighbour():
    first, second = TWO.requests
    drive = driven(replace(TWO, requests=(replace(first, abort_step=2), second)))
    assert [own.samples()[0].output.finish_reason for own in drive.driven] == ["abort", "length"]
    assert [own.was_aborted for own in drive.driven] == [True, False]
    assert drive.driven[0].samples()[0].output.token_ids == driven(TWO).driven[0].samples()[0].output.token_ids[:2]


def test_a_block_that_is_left_is_seen():
    drive = driven(TWO)
    drive.core.scheduler.blocks.pool.allocate(1)
    with pytest.raises(InvariantViolation, match="1 blocks are left"):
        check_all_given_back(drive.core)


def test_what_is_left_of_guesses_for_an_aborted_request_is_seen():
    first, second = guessing("right", "wrong").requests
    scenario = replace(guessing("right", "wrong"), requests=(replace(first, abort_step=2), second))
    driven(scenario)
    with (
        FAULTS["abort_leaves_draft"].planted(),
        pytest.raises(InvariantViolation, match="ended, and 1 samples that were guessed for are left"),
    ):
        driven(scenario)


def test_a_run_without_an_end_is_stopped(monkeypatch):
    monkeypatch.setattr(drive_module, "MIN_MAX_STEPS", 4)
    monkeypatch.setattr(drive_module, "MAX_STEPS_PER_TOKEN", 0)
    with pytest.raises(OutcomeMismatch, match="have not ended"):
        driven(TWO)


@pytest.mark.parametrize("sampling", [{}, {"prompt_logprobs": 1}], ids=["plain", "prompt_logprobs"])
@pytest.mark.parametrize("guesses", [("right",), ("wrong",), ("right", "right", "wrong")])
def test_each_token_of_a_step_comes_with_the_logits_that_it_was_picked_from(guesses, sampling):
    scenario = guessing(*guesses, **sampling)
    drive = driven(scenario)
    assert drive.core.stats().num_proposed_tokens
    for own, alone in zip(drive.driven, symbolic_answers(scenario), strict=True):
        assert own.samples()[0].output.token_ids == alone[0].output.token_ids
        given = own.samples()[0].logits
        assert len(given) == 6
        assert all((row == right).all() for row, right in zip(given, alone[0].logits, strict=True))


def test_right_guesses_take_fewer_steps_and_none_is_missed():
    drive = driven(guessing("right"))
    assert drive.num_steps < driven(TWO).num_steps
    check_guesses(drive, are_all_right=True)


def test_wrong_guesses_are_rejected_and_may_not_be_claimed_to_be_right():
    drive = driven(guessing("wrong"))
    check_guesses(drive)
    with pytest.raises(OutcomeMismatch, match=r"request 0, sample 0: the last 3 of 3 guessed tokens were rejected by"):
        check_guesses(drive, are_all_right=True)


def test_right_guess_that_is_rejected_is_seen():
    with FAULTS["no_token_after_a_right_guess"].planted():
        drive = driven(guessing("right"))
    with pytest.raises(OutcomeMismatch, match="and the first was right"):
        check_guesses(drive)


@pytest.mark.parametrize(
    ("num_rejected", "num_tokens", "ends_inside", "are_all_right", "is_fine"),
    [
        (0, 5, False, True, True),
        (2, 5, False, False, True),
        (2, 5, False, True, False),
        (2, 9, False, True, False),
        (2, 9, True, False, True),
        (2, 9, True, True, True),
        (2, 8, True, False, False),
        (1, 8, True, True, False),
    ],
)
def test_right_guess_may_be_rejected_by_the_last_token_only(
    num_rejected, num_tokens, ends_inside, are_all_right, is_fine
):
    """The request ends with 9 tokens."""
    drive = driven(TWO)
    state = drive.driven[0].states[0]
    assert state.num_tokens == 9
    drive.core.scheduler.verified.append(
        Verified(state, 3, num_rejected, 0, num_tokens=num_tokens, ends_inside=ends_inside)
    )
    if is_fine:
        check_guesses(drive, are_all_right=are_all_right)
        return
    with pytest.raises(OutcomeMismatch, match=f"by token {num_tokens}, ") as caught:
        check_guesses(drive, are_all_right=are_all_right)
    assert caught.value.num_rejected == num_rejected


def test_modes_without_guesses_have_none_to_check():
    check_guesses(driven(TWO, "static"), are_all_right=True)
