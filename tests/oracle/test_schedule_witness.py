"""A feature counts when the engine had it."""

import pytest

from oracle.choosers import RandomChooser
from oracle.engine_spec import EngineSpec, StepScript
from oracle.sampling_spec import SamplingSpec
from oracle.scenario import RequestSpec, Scenario
from oracle.schedule_strategies import choose_symbolic_schedule
from oracle.schedule_witness import FEATURES, PAIRS, SPECULATIVE_FEATURES, WitnessTable, features_of
from oracle.symbolic_check import run_symbolic, symbolic_answers

pytestmark = pytest.mark.without_shape_checks

ONE = RequestSpec((1, 2, 3, 0), 3, ignore_eos=True)
SEEDED = SamplingSpec(temperature=1.0, seed=1)
GUESSING = {"speculative": "scripted"}
NUM_SCHEDULES = 80


def features(*requests, script=(), **engine):
    scenario = Scenario(requests, checkpoint=None, engine=EngineSpec(**engine), script=script, is_symbolic=True)
    return features_of(run_symbolic(scenario, "paged"))


@pytest.mark.parametrize(
    ("requests", "script", "engine", "expected"),
    [
        ((ONE,), (), {}, set()),
        ((ONE,), (), {"max_num_batched_tokens": 3}, {"split"}),
        ((RequestSpec((1, 2, 3), 1, sampling=SEEDED),), (), {"max_num_batched_tokens": 2}, {"split", "seed × chunk"}),
        ((ONE,), (StepScript(), StepScript(swap=(0,))), {}, {"preemption", "swap"}),
        (
            (ONE,),
            (StepScript(), StepScript(swap=(0,))),
            {"num_swap_blocks": 0},
            {"preemption", "full swap → recompute"},
        ),
        ((RequestSpec((1, 2, 3), 2, abort_step=1, ignore_eos=True),), (), {}, {"abort"}),
        ((RequestSpec((1, 2, 3), 2, ignore_eos=True, sampling=SamplingSpec(n=2)),), (), {}, {"fork", "copy on write"}),
        ((ONE,), (), GUESSING, {"accept", "bonus"}),
        ((ONE,), (), GUESSING | {"guesses": ("wrong",)}, {"reject"}),
        ((ONE,), (), GUESSING | {"guesses": ("wrong",), "block_size": 1}, {"reject", "lost block"}),
        ((ONE,), (), GUESSING | {"guesses": ("nothing",)}, {"empty proposal"}),
    ],
)
def test_features_are_what_the_engine_did(requests, script, engine, expected):
    assert features(*requests, script=script, **engine) == expected


def test_table_counts_shares_and_what_is_missing():
    table = WitnessTable()
    scenario = Scenario((ONE,), checkpoint=None, is_symbolic=True)
    table.see(run_symbolic(scenario, "paged"), {"top_k"})
    assert set(table.missing((*FEATURES, *PAIRS))) == {*FEATURES, *PAIRS}
    assert (table.share("split"), table.count_by_effect["top_k"], table.num_requests) == (0.0, 1, 1)


def test_right_guess_that_ends_a_request_is_a_feature():
    """The rest of the guess is rejected with it, and the guess itself has not run for nothing."""
    (alone,) = symbolic_answers(Scenario((ONE,), checkpoint=None, is_symbolic=True))
    first, second, _ = alone[0].output.token_ids
    assert first != second
    stopping = SamplingSpec(stop_token_ids=(second,))
    request = RequestSpec(ONE.prompt_token_ids, 6, ignore_eos=True, sampling=stopping)
    assert features(request, **GUESSING) == {"reject", "end inside a draft"}


def table_of(*, is_speculative):
    choose, table = RandomChooser(0), WitnessTable()
    for _ in range(NUM_SCHEDULES):
        table.see(run_symbolic(choose_symbolic_schedule(choose, is_speculative=is_speculative), "paged"))
    return table


def test_features_of_guessed_tokens_come_up_with_guesses_and_never_without():
    assert table_of(is_speculative=True).missing(SPECULATIVE_FEATURES) == ()
    assert table_of(is_speculative=False).missing(SPECULATIVE_FEATURES) == SPECULATIVE_FEATURES
