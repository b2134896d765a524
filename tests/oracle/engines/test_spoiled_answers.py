import pytest

from oracle.engines import spoiled_answers
from oracle.engines.messages import EngineOutput, EngineRequest, EngineRun, EngineSample
from oracle.engines.misbehaving import EchoEngine


def fixed_engine(*outputs):
    """An engine that gives these outputs whatever it is asked."""
    return EchoEngine(lambda _adapter, _requests, _number: EngineRun(outputs))


def sample_of(*token_ids, reason="length", **scores):
    return EngineSample(token_ids, reason, **scores)


@pytest.fixture
def requests(request_of):
    return [
        request_of("aborted", abort_after=1),
        request_of("drawn", temperature=1.0),
        request_of("greedy", logit_bias=[[1, 1.0]], min_tokens=1),
    ]


@pytest.fixture
def engine():
    """Gives two tokens to each of three requests, all with scores."""
    scores = {"logprobs": (-1.0, -2.0), "top_logprobs": ({3: -1.0}, {4: -2.0}), "logits": ((0.0, 1.0), (2.0, 3.0))}
    return fixed_engine(*(EngineOutput(name, (sample_of(3, 4, **scores),)) for name in ("aborted", "drawn", "greedy")))


def spoiled(name, engine, requests):
    """The tokens of all first samples, spoiled."""
    run = getattr(spoiled_answers, name)(engine, requests, 0)
    return [output.samples[0].token_ids if output.samples else None for output in run.outputs]


@pytest.mark.parametrize(
    ("name", "tokens"),
    [
        ("token_changed", [(3, 4), (3, 4), (3, 0)]),
        ("early_end", [(3, 4), (3,), (3, 4)]),
        ("late_end", [(3, 4), (3, 4, 4), (3, 4)]),
        ("nothing_said", [(3, 4), (), (3, 4)]),
        ("foreign_token", [(3, 4), (3, -1), (3, 4)]),
        ("output_missing", [(3, 4), (3, 4)]),
        ("output_doubled", [(3, 4)] * 4),
        ("sample_missing", [None] * 3),
    ],
)
def test_answer_is_spoiled_where_nobody_aborts_it(engine, requests, name, tokens):
    assert spoiled(name, engine, requests) == tokens


def test_token_changed_to_0_or_from_it_to_1(requests):
    engine = fixed_engine(*(EngineOutput(request.request_id, (sample_of(0),)) for request in requests))
    assert spoiled("token_changed", engine, requests)[-1] == (1,)


def test_late_end_lengthens_all_that_comes_with_tokens(engine, requests):
    sample = spoiled_answers.late_end(engine, requests, 0).outputs[1].samples[0]
    assert sample.logprobs == (-1.0, -2.0, -2.0)
    assert sample.top_logprobs == ({3: -1.0}, {4: -2.0}, {4: -2.0})
    assert sample.logits == ((0.0, 1.0), (2.0, 3.0), (2.0, 3.0))


def test_early_end_leaves_an_answer_of_one_token(request_of):
    engine = fixed_engine(EngineOutput("r0", (sample_of(3),)))
    assert spoiled("early_end", engine, [request_of()]) == [(3,)]


def test_reason_changed_claims_an_abort(engine, requests):
    run = spoiled_answers.reason_changed(engine, requests, 0)
    assert [output.samples[0].finish_reason for output in run.outputs] == ["length", "abort", "length"]


def test_answers_swapped_leaves_the_names(request_of):
    engine = fixed_engine(*(EngineOutput(f"r{number}", (sample_of(number),)) for number in range(3)))
    run = spoiled_answers.answers_swapped(engine, [request_of(f"r{number}") for number in range(3)], 0)
    assert [(own.request_id, own.samples[0].token_ids) for own in run.outputs] == [
        ("r0", (1,)),
        ("r1", (0,)),
        ("r2", (2,)),
    ]


def test_answers_swapped_leaves_one_answer_alone(request_of):
    engine = fixed_engine(EngineOutput("r0", (sample_of(3),)))
    assert spoiled("answers_swapped", engine, [request_of()]) == [(3,)]


def test_outputs_swapped_turns_them_round(engine, requests):
    run = spoiled_answers.outputs_swapped(engine, requests, 0)
    assert [output.request_id for output in run.outputs] == ["greedy", "drawn", "aborted"]


def test_parameters_dropped_before_the_engine_sees_them(requests):
    seen: list[EngineRequest] = []

    def see(adapter, own, _):
        seen.extend(own)
        return adapter.run(own)

    spoiled_answers.parameters_dropped(EchoEngine(see), requests, 0)
    assert [request.parameters for request in seen] == [{}, {"temperature": 1.0}, {"min_tokens": 1}]


def test_samples_alike_repeats_the_first(request_of):
    engine = fixed_engine(EngineOutput("r0", (sample_of(3), sample_of(4))))
    run = spoiled_answers.samples_alike(engine, [request_of()], 0)
    assert run.outputs[0].samples == (sample_of(3), sample_of(3))


def test_illegal_taken_turns_refusals_into_empty_answers(request_of):
    engine = fixed_engine(EngineOutput("r0", refused="no"), EngineOutput("r1", (sample_of(3),)))
    run = spoiled_answers.illegal_taken(engine, [request_of(), request_of("r1")], 0)
    assert run.outputs == (EngineOutput("r0", (sample_of(),)), EngineOutput("r1", (sample_of(3),)))
