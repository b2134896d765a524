"""One uncached pass, and the mode without a cache, against the reference and the witness."""

import pytest
import torch
from hypothesis import given, settings

from oracle.case import Case
from oracle.compare import as_rows, compare_logits
from oracle.metamorphic_properties import check_alone_equals_batched, check_order
from oracle.reference_properties import (
    check_greedy_tokens,
    check_half_precision,
    check_oracles_agree,
    check_reference_bits,
    check_reference_logits,
    check_stopping,
    check_witness_logits,
)
from oracle.scenario import RequestSpec, Scenario
from oracle.strategies import scenarios
from oracle.tolerances import FLOAT64_BOUND

pytestmark = pytest.mark.without_shape_checks

HALF_DTYPES = ("bfloat16", "float16")

FEW = settings(max_examples=max(5, settings().max_examples // 4))
"""`python -m oracle check` draws hundreds; here the shape checks run as well, and each case costs more."""


@FEW
@given(scenario=scenarios(dtypes=("float32", *HALF_DTYPES)))
def test_forward_matches_reference_bits(scenario):
    """All rows of one sequence: the same operations on the same shapes."""
    check_reference_bits(Case(scenario), "none")


@pytest.mark.parametrize("num_threads", [1, 2, 3])
def test_number_of_threads_does_not_change_that_forward_matches_reference_bits(num_threads):
    requests = tuple(RequestSpec(tuple(range(length)), max_tokens=2) for length in (1, 17, 96))
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        check_reference_bits(Case(Scenario(requests)), "none")
    finally:
        torch.set_num_threads(before)


@FEW
@given(scenario=scenarios(dtypes=("float64",)))
def test_forward_matches_witness_logits(scenario):
    """All rows again, where nothing but the order of float64 sums may differ."""
    case = Case(scenario)
    for index, request in enumerate(scenario.requests):
        logits = as_rows(case.subject("none").all_logits(request.prompt_token_ids))
        expected = case.witness_logits(request.prompt_token_ids)
        compare_logits(logits, expected, FLOAT64_BOUND, f"request {index}, all rows")


@FEW
@given(scenario=scenarios(dtypes=("float32",)))
def test_oracles_match_each_other(scenario):
    check_oracles_agree(Case(scenario), "none")


@FEW
@given(scenario=scenarios(dtypes=("float32",)))
def test_none_matches_reference_logits(scenario):
    """Several requests in one pass: other shapes, so the reference's own noise is the bound."""
    check_reference_logits(Case(scenario), "none")


@FEW
@given(scenario=scenarios())
def test_none_matches_reference_token_ids(scenario):
    check_greedy_tokens(Case(scenario), "none")


@FEW
@given(scenario=scenarios(dtypes=("float64",)))
def test_none_matches_witness_logits(scenario):
    check_witness_logits(Case(scenario), "none")


@FEW
@given(scenario=scenarios(dtypes=HALF_DTYPES))
def test_none_is_as_close_to_the_witness_as_the_reference_in_half_precision(scenario):
    check_half_precision(Case(scenario), "none")


@FEW
@given(scenario=scenarios())
def test_company_and_order_do_not_change_what_none_computes(scenario):
    case = Case(scenario)
    check_alone_equals_batched(case, "none")
    check_order(case, "none")


@FEW
@given(scenario=scenarios(dtypes=("float32",)))
def test_none_ends_every_request_where_it_should(scenario):
    check_stopping(Case(scenario), "none")
