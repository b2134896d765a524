"""A manager takes one turn at a time, and tells what it did; on a real tiny Llama."""

from collections import Counter

import pytest

from oracle.engines.adapters.hugging_face_batch_settings import KNOBS, manager_parameters
from oracle.engines.adapters.hugging_face_generate import load_model, take_eos_token_ids
from oracle.engines.adapters.hugging_face_manager import MAX_IDLE_STEPS, SteppedManager
from oracle.engines.messages import EngineRequest
from oracle.families import FamilySpec, cached_family_checkpoint

LONG = (70, 12, 44, 91, 17, 63, 28, 101, 8, 33)


@pytest.fixture(scope="module")
def model():
    loaded = load_model(str(cached_family_checkpoint(FamilySpec())), "sdpa")
    take_eos_token_ids(loaded)
    return loaded


@pytest.fixture
def make_manager(model):
    def make(parameters=None, **knobs):
        fixed = manager_parameters(parameters or {}, return_logprobs=False)
        manager = SteppedManager(model, {name: values[0] for name, values in KNOBS.items()} | knobs, fixed)
        witnesses: Counter[str] = Counter()
        manager.begin(witnesses)
        return manager, witnesses

    return make


def request_of(name, prompt, max_tokens=6, **others):
    return EngineRequest(name, prompt, max_tokens, **others)


def run_out(manager):
    while manager.is_busy:
        manager.step()


def test_prompt_in_pieces_is_counted(make_manager):
    manager, witnesses = make_manager(max_batch_tokens=4)
    manager.add(request_of("a", LONG), ())
    run_out(manager)
    assert len(manager.output("a").samples[0].token_ids) == 6
    assert witnesses["chunks"] == 2
    assert manager.num_held_blocks == 0


def test_shared_prefix_is_counted_also_in_a_later_run(make_manager):
    manager, witnesses = make_manager(page_size=4)
    manager.add(request_of("a", LONG), ())
    run_out(manager)
    first = manager.output("a")
    manager.begin(witnesses)
    manager.add(request_of("a", LONG), ())
    run_out(manager)
    assert witnesses["cached_tokens"] == 8
    assert manager.output("a") == first


def test_request_that_gives_way_is_counted_and_comes_to_the_same_end(make_manager):
    alone, _ = make_manager()
    starved, witnesses = make_manager(page_size=4, num_blocks=8, scheduler_type="prefill_first")
    for manager in (alone, starved):
        for name, prompt in (("a", LONG), ("b", LONG[1:])):
            manager.add(request_of(name, prompt, max_tokens=16), ())
        run_out(manager)
    assert witnesses["preemptions"] > 0
    assert [starved.output(name) for name in "ab"] == [alone.output(name) for name in "ab"]


def test_request_ends_at_its_own_stop_token(make_manager):
    manager, _ = make_manager()
    manager.add(request_of("a", LONG), ())
    run_out(manager)
    tokens = manager.output("a").samples[0].token_ids
    manager.begin(Counter())
    manager.add(request_of("b", LONG), (tokens[2],))
    run_out(manager)
    assert manager.output("b").samples[0].token_ids == tokens[: tokens.index(tokens[2]) + 1]


def test_aborted_request_tells_the_tokens_that_came(make_manager):
    manager, witnesses = make_manager()
    manager.add(request_of("a", LONG, abort_after=2), ())
    manager.add(request_of("b", LONG), ())
    run_out(manager)
    (sample,) = manager.output("a").samples
    assert sample.finish_reason == "abort"
    assert sample.token_ids == manager.output("b").samples[0].token_ids[:2]
    assert witnesses["aborts"] == 1


def test_each_answer_of_a_request_is_told(make_manager):
    manager, _ = make_manager({"temperature": 1.5, "n": 3})
    manager.add(request_of("a", LONG, parameters={"temperature": 1.5, "n": 3}), ())
    run_out(manager)
    assert len({sample.token_ids for sample in manager.output("a").samples}) == 3


def test_request_that_the_manager_calls_wrong_is_refused_in_its_words(make_manager):
    manager, _ = make_manager({"temperature": 1.5})
    manager.add(request_of("a", LONG, parameters={"temperature": 1.5, "top_k": 2.5}), ())
    run_out(manager)
    assert "top_k" in manager.output("a").refused


def test_requests_that_wait_without_end_are_told_of(make_manager):
    manager, _ = make_manager()
    manager.add(request_of("a", LONG), ())
    manager._processor.scheduler.block_new_requests = True
    with pytest.raises(RuntimeError, match=f"a wait, and {MAX_IDLE_STEPS} turns"):
        run_out(manager)
