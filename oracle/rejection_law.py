"""Do tokens that were guessed, and those that replace them, have the law of the model alone? In closed form."""

import numpy as np

from oracle.errors import LogitsMismatch
from oracle.sampling_effects import plain_token
from oracle.sampling_spec import SamplingSpec
from refinfer.sampling import SampleContext
from refinfer.scheduler import Request
from refinfer.shapes import Probabilities
from refinfer.speculative import verifier

LAW_BOUND = 1e-12
"""Sums of a few float64 products, each of which is right to some 1e-16."""

SOURCES_OF_LAW = ("refinfer/speculative/verifier.py",)
"""Where everything stands that the law asks, so that whatever breaks it sits there."""

SAMPLED_LAW_BOUND = 1e-9
"""Weights are exponentials here and there, of logits that penalties have moved, added up in another order."""

_MAX_VOCAB_SIZE = 8
_PROMPT, _OUTPUT = (0, 1), (1, 1, 0)
_EOS_TOKEN_IDS = frozenset({1})


def law_after_verification(target: Probabilities, drafted: Probabilities) -> Probabilities:
    """Gives the law of the token that comes out where one was drawn from another distribution and then verified.

    The sum over all guesses of their probability, times what becomes of each: it stays, or the residual replaces it.
    """
    law = np.zeros(len(target))
    for token_id in np.flatnonzero(drafted):
        stays = verifier.acceptance(target, drafted, int(token_id))
        law[token_id] += drafted[token_id] * stays
        if stays < 1.0:
            residual = verifier.residual(target, drafted)
            law += drafted[token_id] * (1.0 - stays) * residual / residual.sum()
    return law


def check_rejection_law(num_cases: int, seed: int) -> int:
    """Holds the law of verified tokens to the target's, for random pairs of distributions, some with zeros.

    Returns:
        How many pairs had a guess that may be rejected.

    Raises:
        LogitsMismatch: The law is another one.
    """
    random = np.random.default_rng(seed)
    num_rejecting = 0
    for number in range(num_cases):
        vocab_size = int(random.integers(2, _MAX_VOCAB_SIZE + 1))
        target, drafted = _distribution(random, vocab_size), _distribution(random, vocab_size)
        num_rejecting += bool((target < drafted).any())
        difference = float(np.abs(law_after_verification(target, drafted) - target).max())
        if not difference <= LAW_BOUND:
            message = (
                f"pair {number}: the law of the tokens is {difference:.3g} off, over {LAW_BOUND:g}; "
                f"model {target.tolist()}, guesses {drafted.tolist()}"
            )
            raise LogitsMismatch(message, difference=difference)
    return num_rejecting


def check_sampled_law(num_cases: int, seed: int) -> int:
    """Holds the law of verified tokens to that of plain sampling, for random logits under random parameters.

    Returns:
        How many cases leave tokens out.

    Raises:
        LogitsMismatch: The law is another one.
    """
    random = np.random.default_rng([seed, 1])
    num_cut = 0
    for number in range(num_cases):
        vocab_size = int(random.integers(2, _MAX_VOCAB_SIZE + 1))
        logits, drafted = 2 * random.normal(size=vocab_size), _distribution(random, vocab_size)
        spec = _parameters(random, vocab_size)
        params = spec.params(len(_OUTPUT) + 1, ignore_eos=False)
        request = Request("law", None, _PROMPT, params)
        context = SampleContext(params, 0, 0, _PROMPT, _OUTPUT, _EOS_TOKEN_IDS)
        weights = dict(plain_token(logits.tolist(), spec, request, _OUTPUT, _EOS_TOKEN_IDS))
        expected = np.array([weights.get(token_id, 0.0) for token_id in range(vocab_size)])
        expected /= expected.sum()
        num_cut += bool((expected == 0.0).any())
        target = verifier.probabilities(logits, context)  # type: ignore[attr-defined]  # what guesses are held to
        law = law_after_verification(target, drafted)
        difference = float(np.abs(law - expected).max())
        if not difference <= SAMPLED_LAW_BOUND:
            message = (
                f"draw {number}: the law of the tokens is {difference:.3g} off, over {SAMPLED_LAW_BOUND:g}; "
                f"logits {logits.tolist()}, {spec}, guesses {drafted.tolist()}"
            )
            raise LogitsMismatch(message, difference=difference)
    return num_cut


def _parameters(random: np.random.Generator, vocab_size: int) -> SamplingSpec:
    """Draws parameters, each of which is left out one time in four, so that most cases have several of them."""
    has = [bool(own) for own in random.integers(4, size=6)]
    return SamplingSpec(
        temperature=float(random.choice([0.5, 1.0, 2.0])),
        top_k=int(random.integers(2, vocab_size + 1)) if has[0] else 0,
        top_p=float(random.uniform(0.2, 0.95)) if has[1] else 1.0,
        min_p=float(random.uniform(0.01, 0.2)) if has[2] else 0.0,
        repetition_penalty=float(random.uniform(0.6, 1.8)) if has[3] else 1.0,
        frequency_penalty=float(random.uniform(-1.0, 1.0)) if has[4] else 0.0,
        logit_bias=((0, float(random.uniform(-2.0, 2.0))),) if has[5] else (),
        min_tokens=int(random.integers(len(_OUTPUT) + 2)),
    )


def _distribution(random: np.random.Generator, vocab_size: int) -> Probabilities:
    """Draws a distribution; every second one leaves tokens out, as top_k does."""
    weights = random.exponential(size=vocab_size)
    if random.integers(2):
        weights[random.permutation(vocab_size)[: random.integers(0, vocab_size)]] = 0.0
    return np.asarray(weights / weights.sum())
