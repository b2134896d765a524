"""A few short requests tell what a server takes and gives; what shows no effect is not claimed."""

import pytest

from oracle.engines.adapters.openai_dialect import ID_FIELDS
from oracle.engines.adapters.openai_http import Server, ServerFailed, ServerRefused
from oracle.engines.adapters.openai_probe import probe


@pytest.fixture
def probed(serve_toy):
    """Gives a function that probes a server of a dialect, with faults; gives what was found."""

    def found(dialect, *faults, model=None):
        address, engine = serve_toy(dialect)
        engine.faults.update(faults)
        return probe(Server(address, timeout=20.0), model)

    return found


def test_probe_finds_all_that_a_rich_server_takes(probed):
    dialect = probed("vllm")
    assert (dialect.model, dialect.max_model_len) == ("toy", 64)
    assert (dialect.takes_ids, dialect.gives_ids, dialect.id_fields) == (True, True, ID_FIELDS)
    assert (dialect.logprobs, dialect.ids_need_logprobs, dialect.scores_of) == ("count", False, "model")
    assert (dialect.shows_stop_token, dialect.is_seeded, dialect.streams) == (True, True, True)
    assert set(dialect.extensions) == {
        *("top_k", "min_p", "repetition_penalty", "stop_token_ids", "min_tokens"),
        *("allowed_token_ids", "ignore_eos", "prompt_logprobs", "cache_salt"),
    }, "all but priority, which it refuses"


def test_probe_claims_nothing_that_a_server_passes_over(probed):
    """The server answers every field that it does not know as if it were not there."""
    dialect = probed("llama")
    assert dialect.extensions == ()
    assert (dialect.takes_ids, dialect.gives_ids, dialect.logprobs) == (True, True, "count")
    assert dialect.ids_need_logprobs
    assert not dialect.streams, "its pieces carry no ids"


def test_probe_falls_back_to_text_and_to_the_other_way_of_asking(probed):
    dialect = probed("mlx")
    assert (dialect.takes_ids, dialect.gives_ids) == (False, True)
    assert (dialect.logprobs, dialect.ids_need_logprobs) == ("flag", True)


def test_probe_leaves_out_fields_that_a_strict_server_refuses(probed):
    dialect = probed("strict")
    assert dialect.id_fields == ()
    assert (dialect.takes_ids, dialect.gives_ids, dialect.logprobs) == (True, False, None)
    assert dialect.extensions == ()


def test_probe_ends_at_text_when_there_is_nothing_else(probed):
    dialect = probed("text")
    assert (dialect.takes_ids, dialect.gives_ids, dialect.logprobs) == (False, False, None)
    assert (dialect.is_seeded, dialect.streams) == (True, True)


def test_probe_sees_whose_scores_are_shown(probed):
    assert probed("vllm", "processed").scores_of == "processed"


def test_probe_sees_that_the_stop_token_is_left_out(probed):
    dialect = probed("vllm", "hides stop")
    assert not dialect.shows_stop_token
    assert "stop_token_ids" in dialect.extensions


def test_probe_asks_for_the_model_that_is_named(probed):
    assert probed("vllm", model="other").model == "other"
    assert probed("vllm", "no models", model="mine").model == "mine"


def test_probe_refuses_to_guess_a_model(probed):
    with pytest.raises(ServerFailed, match=r"lists no models \(404: not found\); name the one to ask for"):
        probed("vllm", "no models")


def test_probe_passes_on_why_nothing_is_completed(serve_toy):
    address, engine = serve_toy("vllm")
    engine.complete = lambda _: (_ for _ in ()).throw(type(engine).refusal("no such model"))
    with pytest.raises(ServerRefused, match="400: no such model"):
        probe(Server(address))
