import pytest

from oracle.engines.adapter import EngineAdapter
from oracle.engines.adapters.mlx_lm_settings import KNOBS
from oracle.engines.environments import python_of
from oracle.engines.messages import EngineRequest
from oracle.engines.process import ProcessEngine
from oracle.engines.registry import find_recipe
from oracle.errors import EngineUnavailable
from tests.oracle.engines.adapters.mlx_lm_stand_in import continuation, put_in_place

SIMPLEST = {name: values[0] for name, values in KNOBS.items()}


@pytest.fixture
def placed(monkeypatch):
    """The stand-in, and an adapter that runs it."""
    stand_in, modules = put_in_place(monkeypatch)
    monkeypatch.setattr(modules.mlx_lm_engine.metadata, "version", lambda _: "0.0.1")
    return stand_in, modules.mlx_lm_engine.MlxLmAdapter()


def _options(stand_in):
    return [values for words, values in stand_in.calls if words == "stream_generate"]


def test_the_adapter_is_one(placed):
    assert isinstance(placed[1], EngineAdapter)
    assert placed[1].declare().version == "0.0.1"


def test_run_refuses_to_run_without_a_model(placed):
    with pytest.raises(RuntimeError, match="no model is open"):
        placed[1].run([EngineRequest("a", (1,), 1)])


@pytest.mark.parametrize("way", ["single", "batch", "speculative"])
def test_outputs_come_in_the_order_of_the_requests(placed, way):
    adapter = placed[1]
    adapter.open("folder", SIMPLEST | {"way": way})
    requests = [EngineRequest(name, (number, 2), 3, {"ignore_eos": True}) for number, name in enumerate("cab")]
    run = adapter.run(requests)
    assert [output.request_id for output in run.outputs] == list("cab")
    assert [output.samples[0].token_ids for output in run.outputs] == [continuation((n, 2), 3) for n in range(3)]


def test_a_parameter_that_mlx_lm_lacks_is_refused(placed):
    adapter = placed[1]
    adapter.open("folder", SIMPLEST)
    run = adapter.run([EngineRequest("a", (1,), 1, {"n": 2}), EngineRequest("b", (1,), 1)])
    assert run.outputs[0].refused == "mlx-lm has no n"
    assert run.outputs[1].samples[0].token_ids == continuation((1,), 1)


def test_a_value_that_mlx_lm_does_not_take_is_refused_in_its_words(placed):
    adapter = placed[1]
    adapter.open("folder", SIMPLEST)
    assert "min_p" in adapter.run([EngineRequest("a", (1,), 1, {"min_p": 2.0})]).outputs[0].refused


def test_a_seed_is_set_right_before_its_request(placed):
    stand_in, adapter = placed
    adapter.open("folder", SIMPLEST)
    adapter.run([EngineRequest("a", (1,), 1, {"seed": 5, "temperature": 1.0})])
    names = [words for words, _ in stand_in.calls]
    assert names.index("seed") < names.index("stream_generate")


def test_a_seeded_request_of_a_batch_comes_alone(placed):
    stand_in, adapter = placed
    adapter.open("folder", SIMPLEST | {"way": "batch"})
    run = adapter.run([EngineRequest("a", (1,), 1, {"seed": 5}), EngineRequest("b", (1,), 1)])
    assert [output.request_id for output in run.outputs] == ["a", "b"]
    assert len(_options(stand_in)) == 1


def test_scores_are_those_of_the_tokens(placed):
    adapter = placed[1]
    adapter.open("folder", SIMPLEST)
    sample = adapter.run([EngineRequest("a", (1, 2), 2, {"logprobs": 1})]).outputs[0].samples[0]
    assert sample.logprobs == (-0.5, -0.5)
    assert [list(entry) for entry in sample.top_logprobs] == [[token_id] for token_id in sample.token_ids]


def test_an_aborted_request_keeps_what_came(placed):
    adapter = placed[1]
    adapter.open("folder", SIMPLEST)
    run = adapter.run([EngineRequest("a", (1, 2), 5, abort_after=2)])
    sample = run.outputs[0].samples[0]
    assert (sample.token_ids, sample.finish_reason) == (continuation((1, 2), 2), "abort")
    assert run.witnesses["aborts"] == 1


def test_a_request_that_ends_where_it_is_to_be_aborted_has_ended(placed):
    adapter = placed[1]
    adapter.open("folder", SIMPLEST)
    assert adapter.run([EngineRequest("a", (1, 2), 2, abort_after=2)]).outputs[0].samples[0].finish_reason == "length"


def test_guesses_are_counted(placed):
    adapter = placed[1]
    adapter.open("folder", SIMPLEST | {"way": "speculative"})
    run = adapter.run([EngineRequest("a", (1, 2), 6, {"ignore_eos": True})])
    num_guessed = sum(token_id != 0 for token_id in run.outputs[0].samples[0].token_ids)
    assert run.witnesses["accepted_tokens"] == num_guessed


def test_a_kept_prompt_is_not_run_again(placed):
    stand_in, adapter = placed
    adapter.open("folder", SIMPLEST | {"prompt_cache": "reuse"})
    adapter.run([EngineRequest("a", (1, 2), 1)])
    prompt = (1, 2, *continuation((1, 2), 1), 4)
    run = adapter.run([EngineRequest("b", prompt, 2)])
    assert run.outputs[0].samples[0].token_ids == continuation(prompt, 2)
    assert run.witnesses["cached_tokens"] == 3
    assert _options(stand_in)[1]["prompt"] == [4]


def test_close_lets_go_of_the_generator(placed):
    adapter = placed[1]
    adapter.open("folder", SIMPLEST | {"way": "batch"})
    adapter.run([EngineRequest("a", (1,), 1)])
    generator = adapter._generator
    adapter.close()
    assert generator.is_closed
    with pytest.raises(RuntimeError, match="no model is open"):
        adapter.run([])


def test_a_generator_that_raised_is_not_used_again(placed, monkeypatch):
    adapter = placed[1]
    adapter.open("folder", SIMPLEST | {"way": "batch"})
    adapter.run([EngineRequest("a", (1,), 1)])
    monkeypatch.setattr(adapter._generator, "next", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        adapter.run([EngineRequest("a", (1,), 1)])
    assert adapter.run([EngineRequest("a", (1,), 1)]).outputs[0].samples[0].token_ids == continuation((1,), 1)


@pytest.fixture(scope="module")
def real_engine():
    """mlx-lm in its own environment."""
    recipe = find_recipe("mlx-lm")
    try:
        python = python_of("mlx-lm")
    except EngineUnavailable as error:
        pytest.skip(str(error))
    engine = ProcessEngine.of_python(recipe.target, str(python), environment=recipe.environment)
    yield engine
    engine.close()


@pytest.mark.parametrize("way", ["single", "batch", "speculative"])
def test_mlx_lm_matches_reference_tokens(real_engine, wrong_checks, way):
    """Greedy requests without penalties, of which mlx-lm gets none wrong; one comes late, one leaves early."""
    requests = (
        EngineRequest("a", (5, 3, 8, 2), 8, {"logprobs": 2}),
        EngineRequest("b", (9, 4, 4, 31, 60, 2, 17), 12, {"ignore_eos": True}, arrival=2),
        EngineRequest("c", (44, 6), 9, abort_after=3),
    )
    assert wrong_checks(real_engine, *requests, knobs={"way": way}) == set()
