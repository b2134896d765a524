import numpy as np
import pytest

from oracle.engines.messages import EngineRequest
from oracle.engines.parameters import DEFAULT_BY_PARAMETER
from oracle.engines.teaching_sampler import Sample, choose, end_of, log_probabilities, process, show

LOGITS = np.array([1.0, -2.0, 4.0, 3.0], dtype=np.float32)
EOS = (2,)


def sample_of(*output, prompt=(0, 1), max_tokens=8, index=0, seed=5, **parameters):
    request = EngineRequest("r0", prompt, max_tokens, parameters)
    return Sample(request, {**DEFAULT_BY_PARAMETER, **parameters}, index, seed, [*prompt, *output], len(prompt))


def test_process_without_parameters_gives_the_logits():
    assert process(sample_of(3), LOGITS, EOS).tolist() == [1.0, -2.0, 4.0, 3.0]


@pytest.mark.parametrize(
    ("sample", "scores"),
    [
        (sample_of(logit_bias=[[1, 5.0], [3, -1.0]]), [1.0, 3.0, 4.0, 2.0]),
        (sample_of(3, repetition_penalty=2.0), [0.5, -4.0, 4.0, 1.5]),
        (sample_of(1, min_tokens=2), [1.0, -2.0, -np.inf, 3.0]),
        (sample_of(1, 1, min_tokens=2), [1.0, -2.0, 4.0, 3.0]),
        (sample_of(min_tokens=1, stop_token_ids=[3], ignore_eos=True), [1.0, -2.0, -np.inf, -np.inf]),
        (sample_of(logit_bias=[[0, -3.0]], repetition_penalty=2.0), [-4.0, -4.0, 4.0, 3.0]),
    ],
    ids=["bias", "penalty of prompt and output", "minimum", "minimum reached", "stop tokens", "bias before penalty"],
)
def test_process_applies_each_parameter(sample, scores):
    assert process(sample, LOGITS, EOS).tolist() == scores


def test_choose_takes_the_lowest_of_equal_tokens():
    assert choose(sample_of(), np.array([1.0, 4.0, 4.0], dtype=np.float32), ()) == 1


def test_choose_draws_among_the_top_k_only_and_by_their_weights():
    drawn = [choose(sample_of(temperature=1.0, top_k=2, seed=seed), LOGITS, EOS) for seed in range(400)]
    assert set(drawn) == {2, 3}
    assert abs(drawn.count(2) / 400 - 1 / (1 + np.exp(-1))) < 0.08


def test_choose_draws_by_seed_answer_and_place_alone():
    def tokens(**values):
        samples = (sample_of(*[0] * place, temperature=5.0, **values) for place in range(30))
        return [choose(sample, LOGITS, EOS) for sample in samples]

    assert tokens() == tokens()
    assert len({tuple(tokens()), tuple(tokens(seed=6)), tuple(tokens(index=1))}) == 3


@pytest.mark.parametrize(
    ("sample", "reason"),
    [
        (sample_of(0), None),
        (sample_of(2), "stop"),
        (sample_of(2, ignore_eos=True), None),
        (sample_of(3, stop_token_ids=[3]), "stop"),
        (sample_of(2, min_tokens=1), None),
        (sample_of(0, 2, min_tokens=1), "stop"),
        (sample_of(0, 0, max_tokens=2), "length"),
        (sample_of(0, 2, max_tokens=2), "stop"),
    ],
)
def test_end_of_gives_the_reason_that_the_newest_token_brings(sample, reason):
    assert end_of(sample, EOS) == reason


def test_log_probabilities_are_of_a_law():
    assert np.exp(log_probabilities(LOGITS)).sum() == pytest.approx(1.0)
    assert log_probabilities(LOGITS)[2] - log_probabilities(LOGITS)[3] == pytest.approx(1.0)


def test_show_gives_the_scores_that_were_asked_for():
    sample = sample_of(3, 2, logprobs=1, logits=True)
    sample.logits, sample.finish_reason = [LOGITS, LOGITS], "stop"
    shown, expected = show(sample), log_probabilities(LOGITS)
    assert shown.token_ids == (3, 2)
    assert shown.finish_reason == "stop"
    assert shown.logprobs == (expected[3], expected[2])
    assert shown.top_logprobs == ({2: expected[2]}, {2: expected[2]})
    assert shown.logits == ((1.0, -2.0, 4.0, 3.0),) * 2


def test_show_gives_no_scores_that_nobody_asked_for():
    sample = sample_of(3)
    sample.logits = [LOGITS]
    shown = show(sample)
    assert (shown.logprobs, shown.top_logprobs, shown.logits) == (None, None, None)
