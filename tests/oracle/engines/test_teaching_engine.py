import pytest

from oracle.contract.constructions import covering_array
from oracle.engines import teaching_engine
from oracle.engines.adapter import EngineAdapter, Refused
from oracle.engines.declaration import EngineDeclaration
from oracle.engines.registry import find_recipe
from oracle.engines.serve import load_adapter
from oracle.engines.teaching_engine import TeachingEngine

pytestmark = pytest.mark.without_shape_checks

DRAWN = {"temperature": 1.5, "seed": 3}
SMALLEST = {"max_num_seqs": 3, "max_chunk": 4, "prefix_cache": True, "max_cached_tokens": 32}


@pytest.fixture
def opened(folder):
    """Opens the engine with some knobs."""

    def open_engine(**knobs):
        engine = TeachingEngine()
        engine.open(str(folder), knobs)
        return engine

    return open_engine


@pytest.fixture
def mixed(request_of):
    """Requests of every kind, some of which come late or are aborted."""
    return [
        request_of("greedy", logits=True, max_tokens=6, ignore_eos=True),
        request_of("biased", range(30, 42), logit_bias=[[9, 8.0]], repetition_penalty=3.0, logprobs=2, arrival=1),
        request_of("drawn", (60, 61), n=2, top_k=5, max_tokens=5, **DRAWN),
        request_of("stopped", range(12), min_tokens=2, stop_token_ids=list(range(0, 70, 2)), max_tokens=8, arrival=2),
        request_of("aborted", (8, 9), max_tokens=6, abort_after=2, ignore_eos=True),
        request_of("salted", range(13), cache_salt="one", max_tokens=2),
    ]


def outputs_by_name(engine, requests):
    return {output.request_id: output for output in engine.run(requests).outputs}


@pytest.mark.parametrize("knobs", [{}, SMALLEST], ids=["simplest", "smallest"])
def test_teaching_engine_keeps_its_contract(wrong_checks, mixed, knobs):
    assert wrong_checks(TeachingEngine(), *mixed, knobs=knobs) == set()


def test_every_setting_gives_the_same_bits(opened, mixed):
    requests = mixed[:3]
    expected = outputs_by_name(opened(), requests)
    for knobs in covering_array(TeachingEngine().declare()):
        assert outputs_by_name(opened(**knobs), requests) == expected


def test_witnesses_count_what_happens(opened, mixed):
    assert opened().run(mixed).witnesses | {"steps": 0} == {
        "steps": 0, "max_batch": 5, "chunks": 0, "preemptions": 0, "cached_tokens": 0,
    }  # fmt: skip
    engine = opened(**SMALLEST)
    first, second = engine.run(mixed).witnesses, engine.run(mixed).witnesses
    assert first["chunks"] > 0
    assert first["max_batch"] == 3
    assert second["cached_tokens"] > first["cached_tokens"]


def test_newest_request_gives_way_and_comes_back_with_the_same_answer(opened, request_of):
    requests = [request_of(f"r{start}", range(start, start + 14), 6, ignore_eos=True, logits=True) for start in (0, 30)]
    run = opened(max_cached_tokens=32).run(requests)
    assert run.witnesses["preemptions"] > 0
    assert run.outputs == opened().run(requests).outputs


def test_prefix_is_shared_with_prompts_that_begin_alike_under_the_same_salt(opened, request_of):
    engine = opened(prefix_cache=True)
    engine.run([request_of(prompt=range(10))])
    for prompt, values, num_cached in (
        (range(10), {}, 9),
        (range(15), {}, 9),
        (range(8), {}, 0),
        (range(10), {"cache_salt": "one"}, 0),
        ((*range(9), 50, 51), {}, 9),
    ):
        run = engine.run([request_of(prompt=prompt, max_tokens=1, **values)])
        assert run.witnesses["cached_tokens"] == num_cached


def test_prefixes_that_are_too_many_are_forgotten(opened, request_of, monkeypatch):
    monkeypatch.setattr(teaching_engine, "MAX_KEPT_PREFIXES", 2)
    engine = opened(prefix_cache=True)
    for number in range(3):
        engine.run([request_of(prompt=(number, 1), max_tokens=1)])
    assert set(engine.prefixes) == {(None, (1,)), (None, (2,))}


def test_opening_anew_forgets_prefixes(opened, folder, request_of):
    engine = opened(prefix_cache=True)
    engine.run([request_of()])
    engine.open(str(folder), {"prefix_cache": True})
    assert engine.run([request_of()]).witnesses["cached_tokens"] == 0


def test_abort_ends_all_answers_of_a_request_with_what_they_have(opened, request_of):
    requests = [
        request_of("r0", max_tokens=6, n=2, abort_after=2, ignore_eos=True),
        request_of("r1", (60, 61), abort_after=0, arrival=1),
        request_of("r2", max_tokens=1, abort_after=1, ignore_eos=True),
    ]
    ended = [[(len(own.token_ids), own.finish_reason) for own in out.samples] for out in opened().run(requests).outputs]
    assert ended == [[(2, "abort"), (2, "abort")], [(0, "abort")], [(1, "length")]]


def test_arrival_is_counted_in_steps(opened, request_of):
    assert opened().run([request_of(max_tokens=1, arrival=5)]).witnesses["steps"] == 6


def test_draws_without_a_seed_differ(opened, request_of):
    engine, request = opened(), request_of(temperature=5.0, max_tokens=12)
    assert engine.run([request]).outputs != engine.run([request]).outputs


def test_request_that_cannot_run_is_refused_and_others_go_on(opened, request_of):
    requests = [request_of("r0"), request_of("r1", ()), request_of("r0"), request_of("r2", top_p=0.5)]
    outputs = opened().run(requests).outputs
    assert [output.refused and output.refused.split()[0] for output in outputs] == [None, "there", "request", "top_p"]
    assert [len(output.samples) for output in outputs] == [1, 0, 0, 0]


@pytest.mark.parametrize("knobs", [{"max_chunk": 0}, {"max_num_seqs": None}, {"block_size": 4}])
def test_open_refuses_settings(opened, knobs):
    with pytest.raises(Refused, match=f"knob {next(iter(knobs))}="):
        opened(**knobs)


def test_open_refuses_a_folder_without_a_model(tmp_path):
    with pytest.raises(Refused, match="config"):
        TeachingEngine().open(str(tmp_path), {})


def test_close_lets_go_and_may_come_first(opened):
    TeachingEngine().close()
    engine = opened()
    engine.close()
    assert not hasattr(engine, "model")


def test_declaration_travels():
    engine = load_adapter(find_recipe("teaching").target)
    assert isinstance(engine, EngineAdapter)
    declaration = engine.declare()
    assert EngineDeclaration.from_data(declaration.to_data()) == declaration
