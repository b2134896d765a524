"""A feature counts when the engine had it."""

import pytest

from oracle.engine_spec import EngineSpec, StepScript
from oracle.sampling_spec import SamplingSpec
from oracle.scenario import RequestSpec, Scenario
from oracle.schedule_witness import FEATURES, PAIRS, WitnessTable, features_of
from oracle.symbolic_check import run_symbolic

ONE = RequestSpec((1, 2, 3, 0), 3, ignore_eos=True)
SEEDED = SamplingSpec(temperature=1.0, seed=1)


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
