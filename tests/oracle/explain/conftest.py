"""A small schedule on a tiny model that has everything worth watching, and runs of it, right and with a bug planted."""

from dataclasses import replace

import pytest

from oracle.case import Case
from oracle.checkpoint_spec import CheckpointSpec
from oracle.engine_spec import EngineSpec, StepScript
from oracle.explain.watched_run import watch_case, watch_symbolic
from oracle.faults import FAULTS
from oracle.sampling_spec import SamplingSpec
from oracle.scenario import RequestSpec, Scenario

SCHEDULE = Scenario(
    requests=(
        RequestSpec((1, 2, 3, 4, 5, 6, 7, 8), max_tokens=4, ignore_eos=True, sampling=SamplingSpec(n=2)),
        RequestSpec((1, 2, 3, 4, 9, 8), max_tokens=3, ignore_eos=True, arrival=2),
    ),
    checkpoint=CheckpointSpec(num_layers=2, num_heads=2, num_kv_heads=1, vocab_size=64),
    engine=EngineSpec(block_size=2, enable_prefix_caching=True),
    script=(StepScript(caps=(3,)), StepScript(), StepScript(), StepScript(swap=(0,)), StepScript(recompute=(0,))),
)
"""Samples that share, a prompt in chunks, a prefix that is found, a swap and a preemption."""


@pytest.fixture
def schedule():
    """The schedule."""
    return SCHEDULE


@pytest.fixture
def symbolic(schedule):
    """The same on the symbolic model."""
    requests = tuple(replace(request, ignore_eos=True) for request in schedule.requests)
    return replace(schedule, requests=requests, checkpoint=None, is_symbolic=True)


@pytest.fixture
def watched():
    """Watches a schedule in a mode, with a bug planted or none."""

    def run(scenario, mode="paged", fault=None):
        def watch():
            return watch_symbolic(scenario, mode) if scenario.is_symbolic else watch_case(Case(scenario), mode)

        if fault is None:
            return watch()
        with FAULTS[fault].planted():
            return watch()

    return run
