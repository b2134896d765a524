import pytest

from oracle.contract import law_check
from oracle.contract.drawing import Limits
from oracle.contract.findings import Findings
from oracle.contract.judging import CHECKS
from oracle.contract.refusal_check import check_refusals
from oracle.engines.adapter import EngineAdapter
from oracle.engines.faulty_engine import FAULTS, FaultyEngine
from oracle.engines.teaching_engine import TeachingEngine
from oracle.errors import EngineUnavailable

pytestmark = pytest.mark.without_shape_checks

PROMPT = (5, 3, 8, 2, 13, 21)
OTHER_PROMPT = (60, 61, 62, 63)
EOS = 7
BY_EOS = {"logit_bias": [[EOS, 100.0]]}
BY_TOKEN = {"logit_bias": [[9, 100.0]]}
DRAWN = {"temperature": 1.5, "seed": 3}

SHOWN_ON = {
    "first_row_parameters": ([{}, {"prompt": OTHER_PROMPT, **BY_TOKEN}], {}),
    "penalty_of_output_only": ([{"logit_bias": [[5, 20.0]], "repetition_penalty": 50.0}], {}),
    "bias_dropped": ([BY_TOKEN], {}),
    "top_k_of_batch": ([{**DRAWN, "temperature": 3.0, "top_k": 1, "max_tokens": 6}, {**DRAWN, "max_tokens": 6}], {}),
    "chunk_positions": ([{"prompt": range(13), "max_tokens": 8, "ignore_eos": True}], {"max_chunk": 4}),
    "min_tokens_ignored": ([{**BY_EOS, "min_tokens": 2}], {}),
    "stop_token_late": ([{**BY_TOKEN, "stop_token_ids": [9]}], {}),
    "max_tokens_off_by_one": ([{}], {}),
    "neighbours_ignore_eos": ([BY_EOS, {"prompt": OTHER_PROMPT, "ignore_eos": True}], {}),
    "first_token_goes_on": ([BY_EOS], {}),
    "stop_called_length": ([BY_EOS], {}),
    "preemption_forgets_length": (
        [
            {"prompt": range(14), "max_tokens": 6, "ignore_eos": True},
            {"prompt": range(20, 34), "max_tokens": 6, "ignore_eos": True},
        ],
        {"max_cached_tokens": 32},
    ),
    "processed_logprobs": ([{**BY_TOKEN, "logprobs": 1}], {}),
    "neighbours_logprobs": ([{"logprobs": 0}, {"prompt": OTHER_PROMPT, "logprobs": 0}], {}),
    "logits_changed_in_place": ([{**BY_TOKEN, "logits": True}], {}),
    "neighbours_stop_tokens": ([BY_TOKEN, {"prompt": OTHER_PROMPT, "stop_token_ids": [9]}], {}),
    "rounding_by_row": ([{"logits": True}, {"prompt": OTHER_PROMPT, "logits": True}], {}),
    "suffix_positions": ([{"prompt": range(13), "logits": True}], {"prefix_cache": True}),
    "abort_shifts_rows": (
        [{"abort_after": 1}, {"prompt": OTHER_PROMPT, "ignore_eos": True}, {"prompt": range(9), "ignore_eos": True}],
        {},
    ),
    "seed_ignored_in_company": ([{**DRAWN, "max_tokens": 6}, {**DRAWN, "prompt": OTHER_PROMPT}], {}),
    "row_in_seed": ([{**DRAWN, "max_tokens": 6}, {**DRAWN, "prompt": OTHER_PROMPT}], {}),
    "samples_alike": ([{**DRAWN, "n": 2, "max_tokens": 12, "ignore_eos": True}], {}),
    "outputs_in_order_of_ends": ([{"ignore_eos": True}, {"prompt": OTHER_PROMPT, "max_tokens": 1}], {}),
}  # fmt: skip
"""For each fault requests and settings on which it shows."""

APART = {
    "penalty_leaks",
    "prefix_too_far",
    "prefix_across_salts",
    "temperature_twice",
    "empty_success",
    "two_ends_crash",
}
"""Those that have tests of their own."""


LIMITS = Limits(vocab_size=71, max_model_len=128, eos_token_ids=(EOS,))


@pytest.fixture
def opened(folder):
    """Opens an engine with some knobs."""

    def open_engine(engine, **knobs):
        engine.open(str(folder), knobs)
        return engine

    return open_engine


@pytest.fixture
def requests_of(request_of):
    """Makes requests of what they ask for, named in their order."""
    return lambda all_values: [request_of(f"r{number}", **values) for number, values in enumerate(all_values)]


@pytest.mark.parametrize("name", SHOWN_ON)
def test_fault_is_caught_by_its_check(wrong_checks, requests_of, name):
    all_values, knobs = SHOWN_ON[name]
    assert FAULTS[name].check in wrong_checks(FaultyEngine(name), *requests_of(all_values), knobs=knobs)


def test_faultless_engine_passes_what_the_faults_fail(wrong_checks, requests_of):
    for all_values, knobs in SHOWN_ON.values():
        assert wrong_checks(TeachingEngine(), *requests_of(all_values), knobs=knobs) == set()


def test_every_fault_is_shown_somewhere():
    assert set(FAULTS) == set(SHOWN_ON) | APART


def test_fault_penalty_leaks_is_caught_when_a_request_comes_after_another(wrong_checks, request_of, opened):
    penalised = request_of("r1", OTHER_PROMPT, repetition_penalty=50.0, arrival=2)
    due = opened(TeachingEngine()).run([penalised]).outputs[0].samples[0].token_ids[0]
    requests = [request_of("r0", (due, *PROMPT), max_tokens=1), penalised]
    assert "tokens" in wrong_checks(FaultyEngine("penalty_leaks"), *requests)
    assert wrong_checks(TeachingEngine(), *requests) == set()


def test_fault_prefix_too_far_is_caught_when_an_earlier_prompt_differs_at_the_border(wrong_checks, request_of):
    before = [[request_of(prompt=(*range(20, 30), 50, 51), max_tokens=1)]]
    request = request_of(prompt=(*range(20, 30), 60, 61), max_tokens=8, ignore_eos=True)
    knobs = {"prefix_cache": True}
    assert "tokens" in wrong_checks(FaultyEngine("prefix_too_far"), request, knobs=knobs, before=before)
    assert wrong_checks(TeachingEngine(), request, knobs=knobs, before=before) == set()


@pytest.mark.parametrize(("engine", "num_cached"), [(TeachingEngine(), 0), (FaultyEngine("prefix_across_salts"), 5)])
def test_fault_prefix_across_salts_shows_in_cached_tokens_only(opened, request_of, engine, num_cached):
    opened(engine, prefix_cache=True)
    engine.run([request_of(cache_salt="one")])
    assert engine.run([request_of(cache_salt="two")]).witnesses["cached_tokens"] == num_cached
    assert engine.run([request_of(cache_salt="one")]).witnesses["cached_tokens"] == 5


@pytest.mark.parametrize(("engine", "num_found"), [(TeachingEngine(), 0), (FaultyEngine("temperature_twice"), 1)])
def test_fault_temperature_twice_is_caught_by_the_law(monkeypatch, opened, referee, engine, num_found):
    monkeypatch.setattr(law_check, "_SETTINGS", ({"temperature": 0.5},))
    found = law_check.check_law(opened(engine), engine.declare(), referee, LIMITS, Findings())
    assert len(found) == num_found


@pytest.mark.parametrize(
    ("engine", "words"), [(TeachingEngine(), set()), (FaultyEngine("empty_success"), {"an empty prompt"})]
)
def test_fault_empty_success_is_caught_by_refusals(opened, engine, words):
    found = check_refusals(opened(engine), engine.declare(), LIMITS, Findings())
    assert {finding.blame[0] for finding, _ in found} == words


def test_fault_two_ends_crash_raises(opened, request_of):
    requests = [request_of("r0"), request_of("r1")]
    engine = opened(FaultyEngine("two_ends_crash"))
    assert engine.run(requests[:1]).outputs[0].refused is None
    with pytest.raises(IndexError):
        engine.run(requests)


@pytest.mark.parametrize("name", FAULTS)
def test_fault_says_in_a_sentence_what_it_does_and_which_check_must_fail(name):
    fault = FAULTS[name]
    assert fault.does.endswith(".")
    assert fault.check in (*CHECKS, None)
    engine = FaultyEngine(name)
    assert isinstance(engine, EngineAdapter)
    assert engine.declare().name == f"faulty-{name}"


def test_faulty_engine_refuses_an_unknown_fault():
    with pytest.raises(EngineUnavailable, match="fault 'none' is unknown; known are first_row_parameters"):
        FaultyEngine("none")


def test_faulty_engine_closes_what_it_opened(opened, request_of):
    engine = opened(FaultyEngine("bias_dropped"))
    engine.close()
    with pytest.raises(AttributeError, match="model"):
        engine.run([request_of()])
