"""Engine settings and scripts are legal, or refused."""

import pytest

from oracle.engine_spec import GUESSES, SPECULATIVES, EngineSpec, StepScript
from oracle.errors import ScenarioError


@pytest.mark.usefixtures("_without_shape_checks")
@pytest.mark.parametrize(
    "values",
    [{"block_size": 0}, {"max_num_batched_tokens": 0}, {"scheduling": "x"}, {"preemption": "x"}]
    + [{name: -1} for name in ("num_spare_blocks", "num_swap_blocks", "placement_seed")]
    + [{"speculative": value} for value in ("x", "", False)]
    + [{"num_speculative_tokens": value} for value in (0, -1, None)]
    + [{"guesses": value} for value in ((), ("x",), ("right", None), ["right"], "right", None, 3)],
)
def test_engine_spec_refuses_what_no_engine_takes(values):
    with pytest.raises(ScenarioError):
        EngineSpec(**values)


@pytest.mark.parametrize("values", [{"caps": (-1,)}, {"swap": (-2,)}, {"admit": -1}, {"rotation": -1}])
def test_step_script_refuses_what_has_no_meaning(values):
    with pytest.raises(ScenarioError):
        StepScript(**values)


def test_empty_step_leaves_all_to_the_policy():
    assert StepScript().is_policy
    assert not any(StepScript(**values).is_policy for values in ({"caps": (1,)}, {"admit": 0}, {"rotation": 1}))


@pytest.mark.parametrize("speculative", [None, *SPECULATIVES])
def test_engine_spec_takes_every_way_to_guess(speculative):
    spec = EngineSpec(speculative=speculative, num_speculative_tokens=1, guesses=GUESSES)
    assert hash(spec) == hash(EngineSpec(speculative=speculative, num_speculative_tokens=1, guesses=GUESSES))
