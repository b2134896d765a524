"""Permitted differences: each says why, and none is so wide that it hides what another rung looks for."""

import ast
import inspect

from oracle import tolerances


def test_every_tolerance_gives_its_reason():
    statements = ast.parse(inspect.getsource(tolerances)).body[1:]
    pairs = zip(statements[::2], statements[1::2], strict=True)
    for assignment, reason in pairs:
        assert isinstance(assignment, ast.Assign)
        assert isinstance(reason, ast.Expr)
        assert isinstance(reason.value, ast.Constant)


def test_float64_bound_is_finer_than_any_float32_noise():
    """Else a float32 step inside a float64 run would pass."""
    assert tolerances.FLOAT64_BOUND < 2.0**-24


def test_oracles_must_agree_more_closely_than_half_precision_rounds():
    """Else an oracle that runs in half precision by mistake would pass."""
    assert tolerances.ORACLE_AGREEMENT_BOUND < 2.0**-10


def test_noise_of_the_reference_is_given_a_factor_and_a_floor():
    """The reference's error on few tokens can happen to be 0, which no other summation order reaches."""
    assert tolerances.NOISE_FACTOR > 1
    assert tolerances.SMALLEST_NOISE_IN_EPS > 0


def test_near_ties_may_explain_few_tokens_only():
    assert 0 < tolerances.MAX_NEAR_TIE_RATE <= 0.01


def test_half_precision_may_err_as_much_as_the_reference_but_not_as_the_next_coarser_rung():
    assert 1 < tolerances.HALF_ERROR_FACTOR <= 2
