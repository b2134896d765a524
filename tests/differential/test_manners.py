"""The invariant manner beside the plain one: fixed orders of addition must not cost accuracy."""

import sys
from dataclasses import replace

import numpy as np
import pytest

from oracle.case import Case
from oracle.check import Checker, CheckSettings
from oracle.compare import as_rows
from oracle.observation import Observation
from oracle.properties import Property
from oracle.strategies import scenarios

pytestmark = pytest.mark.without_shape_checks

NUM_CASES = 16
BOUND = 1.5


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
def test_invariant_manner_is_as_close_to_the_witness_as_the_plain_one(dtype):
    errors: dict[bool, list[np.ndarray]] = {False: [], True: []}

    def note_errors(case, _mode):
        for is_invariant, own in errors.items():
            subject = Case(replace(case.scenario, batch_invariant=is_invariant)).subject("none")
            for request in case.scenario.requests:
                witness = case.witness_logits(request.prompt_token_ids)
                own.append(np.abs(as_rows(subject.all_logits(request.prompt_token_ids)) - witness).ravel())
        return Observation()

    Checker(
        CheckSettings(
            modes=("none",),
            strategy=scenarios((dtype,)),
            folder=None,
            num_examples=NUM_CASES,
            seed=0,
            properties=(Property("errors", "How far from the witness?", note_errors),),
        )
    ).run()
    plain, invariant = (np.concatenate(errors[is_invariant]) for is_invariant in (False, True))
    assert len(plain) == len(invariant)
    assert not np.array_equal(plain, invariant), "the manners compute the same, so nothing was compared"
    mean, largest = invariant.mean() / plain.mean(), invariant.max() / plain.max()
    sys.stdout.write(f"\n  {dtype}: invariant errs {mean:.2f} (mean), {largest:.2f} (largest) times as plain does\n")
    assert mean <= BOUND
    assert largest <= BOUND
