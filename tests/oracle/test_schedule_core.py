"""Engines are set up as a scenario says."""

import pytest

from oracle.engine_spec import EngineSpec
from oracle.sampling_spec import SamplingSpec
from oracle.scenario import RequestSpec, Scenario
from oracle.schedule_core import FIRST_FREE_SEED, block_space_of, num_blocks_of, requests_of, symbolic_core
from oracle.symbolic_check import SYMBOLIC_MODES


def scenario_of(**engine):
    requests = (RequestSpec((1,) * 7, 3), RequestSpec((1,), 1, sampling=SamplingSpec(seed=9), cache_salt="a"))
    return Scenario(requests, checkpoint=None, engine=EngineSpec(**engine), is_symbolic=True)


def test_spare_blocks_come_on_top_of_the_longest_request():
    assert num_blocks_of(scenario_of(block_size=4, num_spare_blocks=2)) == 3 + 2
    assert num_blocks_of(scenario_of(block_size=4)) == 3 * 3


def test_requests_have_fixed_seeds():
    assert [(request.seed, request.cache_salt) for request in requests_of(scenario_of())] == [
        (FIRST_FREE_SEED, None),
        (9, "a"),
    ]


def test_settings_reach_the_blocks():
    space = block_space_of(scenario_of(block_size=2, num_spare_blocks=0, num_swap_blocks=1))
    assert (space.block_size, space.pool.num_blocks, space.num_swap_blocks, space.prefix) == (2, 5, 1, None)


@pytest.mark.parametrize("mode", SYMBOLIC_MODES)
def test_symbolic_core_has_blocks_in_the_paged_mode_only(mode):
    assert (symbolic_core(scenario_of(), mode).scheduler.blocks is not None) == (mode == "paged")
