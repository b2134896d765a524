"""Drawn tokens follow the distribution: G-tests, of which one in a million runs would fail by chance.

Each test holds counts against what the plain computation expects; p-values are corrected together by Holm's method,
so that the stated rate holds for the family. Seeds are fixed: what passes today passes tomorrow.
"""

from typing import Any

import numpy as np
import pytest
from scipy import stats

from refinfer.sampling import SampleContext, SamplingParams, sample_token

NUM_DRAWS = 2000

ROW = np.array([1.5, -0.5, 0.75, 2.0, 2.0, -3.0, 0.0, 1.0], dtype=np.float32)

PROMPT = (0, 0, 3)

OUTPUT = (4, 6, 4, 4)

CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "plain": {"temperature": 1.0},
    "cold": {"temperature": 0.4},
    "hot": {"temperature": 3.0},
    "top_k": {"temperature": 1.0, "top_k": 3},
    "top_k at a tie": {"temperature": 1.5, "top_k": 1, "logit_bias": {3: -0.5}},
    "top_p": {"temperature": 1.0, "top_p": 0.7},
    "min_p": {"temperature": 1.0, "min_p": 0.2},
    "all cuts": {"temperature": 1.2, "top_k": 6, "top_p": 0.9, "min_p": 0.05},
    "repetition": {"temperature": 1.0, "repetition_penalty": 1.8},
    "presence": {"temperature": 1.0, "presence_penalty": 1.5},
    "frequency": {"temperature": 1.0, "frequency_penalty": 0.75},
    "bias and mask": {"temperature": 1.0, "logit_bias": {5: 4.0, 1: 1.5}, "min_tokens": 9, "stop_token_ids": [3]},
    "everything": {
        "temperature": 0.9,
        "top_k": 7,
        "top_p": 0.95,
        "min_p": 0.01,
        "repetition_penalty": 1.2,
        "presence_penalty": 0.3,
        "frequency_penalty": -0.2,
        "logit_bias": {5: 3.0},
    },
}


def draws(sampler, params, *, seed, num_draws=NUM_DRAWS):
    """Tokens of many answers, all drawn after the same output."""
    contexts = (SampleContext(params, seed, index, PROMPT, OUTPUT, frozenset()) for index in range(num_draws))
    return [sampler(ROW, context) for context in contexts]


def goodness_of_fit(g_test_p_value, sampler, plain_distribution, configurations):
    """The p-value of each configuration."""
    p_values = {}
    for seed, (name, changes) in enumerate(configurations.items()):
        params = SamplingParams(max_tokens=None, **changes)
        shares = plain_distribution(ROW.tolist(), params, prompt=PROMPT, output=OUTPUT).row(len(ROW))
        counts = np.bincount(draws(sampler, params, seed=seed), minlength=len(ROW))
        p_values[name] = g_test_p_value(counts, np.array(shares) * NUM_DRAWS)
    return p_values


def drawn_a_fifth_too_greedily(logits, context):
    """The negative control: one answer in five takes the likeliest of the row whatever the draw says."""
    return int(logits.argmax()) if context.sample_index % 5 == 0 else sample_token(logits, context)


@pytest.mark.usefixtures("_without_shape_checks")
def test_drawn_tokens_follow_the_plain_distribution(g_test_p_value, rejected, plain_distribution):
    p_values = goodness_of_fit(g_test_p_value, sample_token, plain_distribution, CONFIGURATIONS)
    assert rejected(p_values) == []
    assert np.median(list(p_values.values())) > 0.01


@pytest.mark.usefixtures("_without_shape_checks")
def test_a_sampler_with_a_bias_of_a_fifth_is_rejected(g_test_p_value, rejected, plain_distribution):
    few = {name: CONFIGURATIONS[name] for name in ("plain", "hot", "top_p", "presence")}
    p_values = goodness_of_fit(g_test_p_value, drawn_a_fifth_too_greedily, plain_distribution, few)
    assert set(rejected(p_values)) == set(few)


def pairs_table(sampler):
    """How often each pair of tokens stands at neighbouring positions of one answer, and how often it should."""
    params = SamplingParams(temperature=1.0)
    table = np.zeros((len(ROW), len(ROW)))
    for sample_index in range(NUM_DRAWS):
        both = [
            sampler(ROW, SampleContext(params, 11, sample_index, PROMPT, OUTPUT[:length], frozenset()))
            for length in (2, 3)
        ]
        table[tuple(both)] += 1
    shares = np.exp(ROW.astype(float)) / np.exp(ROW.astype(float)).sum()
    return table.ravel(), np.outer(shares, shares).ravel() * NUM_DRAWS


def drawn_in_pairs(logits, context):
    """The negative control: of five answers one draws positions 2 and 3 from the same number."""
    if context.sample_index % 5:
        return sample_token(logits, context)
    output = context.output_token_ids[:2]
    return sample_token(
        logits, SampleContext(context.params, context.seed, context.sample_index, (), output, frozenset())
    )


@pytest.mark.usefixtures("_without_shape_checks")
def test_neighbouring_positions_are_independent(g_test_p_value, rejected):
    assert rejected({"pairs": g_test_p_value(*pairs_table(sample_token))}) == []


@pytest.mark.usefixtures("_without_shape_checks")
def test_a_sampler_that_repeats_a_fifth_of_its_draws_is_rejected(g_test_p_value, rejected):
    assert rejected({"pairs": g_test_p_value(*pairs_table(drawn_in_pairs))}) == ["pairs"]


def test_holm_rejects_the_small_ones_of_a_family(rejected):
    assert rejected({"a": 0.5, "b": 1e-8, "c": 4e-7}) == ["b", "c"]
    assert rejected({"a": 0.5, "b": 4e-7, "c": 4e-7}) == []


def test_g_test_takes_small_cells_together_and_refuses_impossible_counts(g_test_p_value):
    assert g_test_p_value([50, 50, 0], [50, 50, 0]) == 1.0
    assert g_test_p_value([50, 49, 1], [50, 50, 0]) == 0.0
    assert g_test_p_value([100, 0, 0], [94, 3, 3]) == pytest.approx(stats.chi2.sf(2 * 100 * np.log(100 / 94), 1))
