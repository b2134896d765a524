"""What growth measures is what it says: who runs, who waits, and that nobody's turn comes meanwhile."""

import pytest

from refinfer.engine.engine import LLMEngine
from refinfer.scheduler import RequestState
from tests.benchmarks import growth
from tests.benchmarks.growth import NUM_RUNNING, QUEUES, scheduling_seconds, step_seconds
from tests.benchmarks.simulation import schedulers, simulate

pytestmark = pytest.mark.without_shape_checks


@pytest.fixture
def crowds(monkeypatch):
    """The schedulers that are timed, for a look at them afterwards."""
    made = []

    def kept(*arguments):
        made.append(crowded(*arguments))
        return made[-1]

    crowded = growth._crowded_scheduler
    monkeypatch.setattr(growth, "_crowded_scheduler", kept)
    return made


@pytest.mark.parametrize("queue", QUEUES, ids=lambda queue: queue.name)
def test_those_that_wait_go_on_waiting_while_the_others_run(crowds, queue):
    assert scheduling_seconds(queue, 7, num_steps=50) > 0
    (scheduler,) = crowds
    assert len(scheduler.waiting) == 7
    assert len(scheduler.running) == NUM_RUNNING
    assert {state.num_computed_tokens for state in scheduler.running} == {growth.NUM_TOKENS + 50}
    assert not any(state.num_preemptions for state in scheduler.running)
    assert scheduler.blocks.num_available_blocks < 50


def test_scheduling_looks_at_no_more_requests_when_more_wait(monkeypatch):
    """Counted, not timed: how often the state of a request that waits is read in fifty steps."""
    looks = []

    def counted(state):
        looks.append(int(state.request.request_id))
        return len(state.token_ids)

    monkeypatch.setattr(RequestState, "num_tokens", property(counted))
    counts: dict[str, set[int]] = {}
    for queue in QUEUES:
        for num_waiting in (1, 2, 500):
            looks.clear()
            scheduling_seconds(queue, num_waiting, num_steps=50)
            counts.setdefault(queue.name, set()).add(len(looks))
            assert all(number <= NUM_RUNNING for number in looks), "nobody behind the first that waits"
    assert all(len(found) == 1 for found in counts.values()), counts


def test_step_of_a_model_is_timed_while_all_decode(tiny, monkeypatch):
    steps: list[int] = []

    def stepped(engine):
        outputs = step(engine)
        steps.append(len(outputs))
        return outputs

    step = LLMEngine.step
    monkeypatch.setattr(LLMEngine, "step", stepped)
    assert step_seconds(tiny.folder, num_running=3, context=8, num_steps=8) > 0
    assert steps == [3] * (2 + 4), "the prompts, one step to warm up, and those that are timed"


def test_continuous_batching_leaves_no_row_empty_and_static_does(tiny):
    by_name = {name: simulate(tiny, scheduler) for name, scheduler in schedulers(2).items()}
    static, continuous = by_name["static"], by_name["continuous"]
    assert static.num_emitted == continuous.num_emitted == tiny.num_output_tokens
    assert static.num_steps == 4 + 6
    assert static.num_rows == 4 * 2 + 6
    assert continuous.num_steps == 8, "the third request runs beside the first from its third step on"
    assert continuous.share == 1
