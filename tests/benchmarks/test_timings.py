"""Timings for pytest-benchmark, which `python -m pytest -m benchmark --benchmark-json FILE` runs and nothing else.

They take minutes, so they run a part of the workloads; `python -m tests.benchmarks` measures all of them, in turns.
"""

import pytest
import torch

from oracle.engines.environments import EnvironmentState, environment_state
from oracle.engines.registry import find_recipe
from oracle.properties import PROPERTIES
from tests.benchmarks import engines, growth, harness_cost, workloads
from tests.benchmarks.hugging_face import generate
from tests.benchmarks.simulation import schedulers, simulate

pytestmark = [pytest.mark.benchmark, pytest.mark.without_shape_checks]

NUM_REQUESTS = 16
MOST_TOKENS = 24

MODES = {
    **{f"{name}, alone": opener for name, opener in engines.modes(1).items()},
    **{f"{name}, batch": opener for name, opener in engines.modes().items()},
}
STATIC_AND_CONTINUOUS = {name: engines.modes()[name] for name in ("static", "continuous")}


@pytest.fixture(scope="module")
def w1():
    return workloads.w1().first(NUM_REQUESTS, MOST_TOKENS)


@pytest.fixture(scope="module")
def expected(w1):
    with generate(w1) as runner:
        return runner().token_ids


def timed(benchmark, work, opener):
    """Runs work three times after a warm-up; keeps beside the seconds what the last run told of itself."""
    with opener(work) as runner:
        run = benchmark.pedantic(runner, rounds=3, warmup_rounds=1)
    benchmark.extra_info.update(
        threads=torch.get_num_threads(),
        throughput=run.throughput,
        mean_ttft=run.mean_ttft,
        mean_itl=run.mean_itl,
        num_passes=run.num_passes,
        kv_use=run.kv_use,
    )
    return run


@pytest.mark.benchmark(group="modes")
@pytest.mark.parametrize("opener", MODES.values(), ids=MODES)
def test_mode(benchmark, w1, expected, opener):
    assert timed(benchmark, w1, opener).token_ids == expected


@pytest.mark.benchmark(group="manners")
@pytest.mark.parametrize("opener", engines.manners().values(), ids=engines.manners())
def test_manner(benchmark, w1, expected, opener):
    assert timed(benchmark, w1, opener).token_ids == expected


@pytest.mark.benchmark(group="peers")
@pytest.mark.parametrize("name", engines.peers())
def test_peer(benchmark, w1, expected, name):
    if name.startswith("vLLM") and environment_state(find_recipe("vllm")) is not EnvironmentState.WHOLE:
        pytest.skip("vLLM: install it with `python -m oracle engines install vllm`")
    assert timed(benchmark, w1, engines.peers()[name]).token_ids == expected


@pytest.mark.benchmark(group="prefix")
@pytest.mark.parametrize("opener", engines.prefix_sharing().values(), ids=engines.prefix_sharing())
def test_shared_prefix(benchmark, opener):
    work = workloads.w3().first(NUM_REQUESTS, MOST_TOKENS)
    assert len(timed(benchmark, work, opener).token_ids) == NUM_REQUESTS


@pytest.mark.benchmark(group="uneven")
@pytest.mark.parametrize("opener", STATIC_AND_CONTINUOUS.values(), ids=STATIC_AND_CONTINUOUS)
@pytest.mark.parametrize("spread", workloads.SPREADS)
def test_uneven_answers(benchmark, spread, opener):
    work = workloads.uneven(spread)
    assert [len(own) for own in timed(benchmark, work, opener).token_ids] == list(work.max_tokens)


@pytest.mark.benchmark(group="simulation")
@pytest.mark.parametrize("name", schedulers(1))
@pytest.mark.parametrize("spread", workloads.SPREADS)
def test_simulated_scheduling(benchmark, spread, name):
    work = workloads.uneven(spread)
    found = benchmark.pedantic(
        lambda: simulate(work, schedulers(engines.MAX_NUM_SEQS)[name]), rounds=3, warmup_rounds=1
    )
    benchmark.extra_info.update(num_steps=found.num_steps, share=found.share)
    assert found.num_emitted == work.num_output_tokens


@pytest.mark.benchmark(group="scheduling")
@pytest.mark.parametrize("num_waiting", growth.NUMS_WAITING)
@pytest.mark.parametrize("queue", growth.QUEUES, ids=lambda queue: queue.name)
def test_scheduling(benchmark, queue, num_waiting):
    seconds = benchmark.pedantic(growth.scheduling_seconds, (queue, num_waiting), rounds=3)
    benchmark.extra_info.update(seconds_per_step=seconds)


@pytest.mark.benchmark(group="harness")
def test_schedules(benchmark):
    rates = benchmark.pedantic(harness_cost.schedules_per_second, (100, 10), rounds=1)
    benchmark.extra_info.update(schedules_per_second=rates)


@pytest.mark.benchmark(group="harness")
@pytest.mark.parametrize("prop", PROPERTIES, ids=lambda prop: prop.name)
def test_property(benchmark, prop):
    seconds = benchmark.pedantic(harness_cost.seconds_per_property, (3, [prop]), rounds=1)
    benchmark.extra_info.update(seconds_per_case=seconds[prop.name])
