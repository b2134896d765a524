"""The law of verified tokens is the model's own as long as the two functions behind it are right."""

import numpy as np
import pytest

from oracle import rejection_law
from oracle.errors import LogitsMismatch
from oracle.faults import FAULTS, LAW_FAULTS
from oracle.rejection_law import LAW_BOUND, check_rejection_law, check_sampled_law, law_after_verification
from oracle.sampling_effects import TOKEN_PARAMETERS

NUM_CASES = 60

OF_DRAWN_PARAMETERS = ("verified_with_cuts_in_other_order",)
"""Faults of what guesses are held to, which need logits and parameters to show."""

OF_PAIRS = tuple(name for name in LAW_FAULTS if name not in OF_DRAWN_PARAMETERS)

PAIRS = {
    "some-more-some-less": ((0.5, 0.3, 0.2), (0.2, 0.2, 0.6)),
    "equal": ((0.25, 0.5, 0.25), (0.25, 0.5, 0.25)),
    "equal-with-zeros": ((0.0, 1 / 3, 2 / 3), (0.0, 1 / 3, 2 / 3)),
    "guesses-leave-tokens-out": ((0.5, 0.3, 0.2), (0.0, 1.0, 0.0)),
    "model-leaves-tokens-out": ((0.0, 1.0, 0.0), (0.5, 0.3, 0.2)),
    "nothing-in-common": ((0.4, 0.6, 0.0, 0.0), (0.0, 0.0, 0.9, 0.1)),
    "same-token": ((0.0, 1.0), (0.0, 1.0)),
    "another-token": ((0.0, 1.0), (1.0, 0.0)),
}


@pytest.mark.parametrize(("target", "drafted"), PAIRS.values(), ids=PAIRS)
def test_law_after_verification_is_the_models(target, drafted):
    law = law_after_verification(np.array(target), np.array(drafted))
    assert law.sum() == pytest.approx(1.0, abs=LAW_BOUND)
    assert np.abs(law - np.array(target)).max() <= LAW_BOUND


@pytest.mark.parametrize("name", OF_PAIRS)
def test_law_after_verification_asks_the_functions_that_verify(name):
    target, drafted = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.2, 0.6])
    with FAULTS[name].planted():
        assert np.abs(law_after_verification(target, drafted) - target).max() > 0.01


@pytest.mark.parametrize("seed", range(3))
def test_check_counts_the_pairs_that_may_reject(seed):
    assert NUM_CASES // 2 < check_rejection_law(NUM_CASES, seed) <= NUM_CASES
    assert check_rejection_law(0, seed) == 0


def test_check_counts_no_pair_of_equal_distributions(monkeypatch):
    monkeypatch.setattr(rejection_law, "_distribution", lambda *_: np.array([0.5, 0.5]))
    assert check_rejection_law(NUM_CASES, 0) == 0


def test_sampled_law_draws_every_parameter_that_changes_a_token_but_one():
    """Presence is left out: what it does to a token that stands there, a bias does too."""
    random = np.random.default_rng(0)
    drawn = {name for _ in range(NUM_CASES) for name in rejection_law._parameters(random, 6).named}
    assert drawn == set(TOKEN_PARAMETERS) - {"presence_penalty"}


@pytest.mark.parametrize("name", OF_PAIRS)
def test_check_names_the_pair_whose_law_is_another(name):
    with (
        FAULTS[name].planted(),
        pytest.raises(
            LogitsMismatch, match=r"pair \d+: the law .* off, over 1e-12; model \[.*\], guesses \["
        ) as caught,
    ):
        check_rejection_law(NUM_CASES, 0)
    assert float(str(caught.value.difference)) > LAW_BOUND
    check_rejection_law(NUM_CASES, 0)


def test_check_refuses_a_law_that_is_no_number(monkeypatch):
    monkeypatch.setattr(rejection_law, "law_after_verification", lambda target, _: target * np.nan)
    with pytest.raises(LogitsMismatch, match="pair 0: the law of the tokens is nan off"):
        check_rejection_law(1, 0)


def test_pairs_have_tokens_left_out_and_both_stay_distributions():
    random = np.random.default_rng(0)
    drawn = [rejection_law._distribution(random, 6) for _ in range(NUM_CASES)]
    assert all(own.sum() == pytest.approx(1.0) and (own >= 0.0).all() for own in drawn)
    assert 0 < sum((own == 0.0).any() for own in drawn) < NUM_CASES


@pytest.mark.parametrize("seed", range(3))
def test_sampled_law_holds_and_most_cases_leave_tokens_out(seed):
    assert NUM_CASES // 2 < check_sampled_law(NUM_CASES, seed) <= NUM_CASES
    assert check_sampled_law(0, seed) == 0


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", OF_DRAWN_PARAMETERS)
def test_sampled_law_names_the_draw_whose_law_is_another(name, seed):
    """And pairs of distributions alone show nothing."""
    with FAULTS[name].planted():
        check_rejection_law(NUM_CASES, seed)
        with pytest.raises(LogitsMismatch, match=r"draw \d+: the law .* off, over 1e-09; logits \[.*\], Sampling"):
            check_sampled_law(2 * NUM_CASES, seed)
    check_sampled_law(2 * NUM_CASES, seed)
