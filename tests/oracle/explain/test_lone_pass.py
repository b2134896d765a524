from dataclasses import replace

import pytest
import torch

from oracle.case import Case
from oracle.explain.lone_pass import LonePasses, noise


def test_lone_pass_holds_every_position_of_prompt_and_output(schedule):
    case = Case(schedule)
    lone = LonePasses(case).of(0, 1)
    output = case.lone_samples[0][1].output.token_ids
    assert lone.token_ids == (*schedule.requests[0].prompt_token_ids, *output)
    assert {len(own) for name, own in lone.activations.items() if name.startswith("model.layers")} == {12}


@pytest.mark.parametrize("is_invariant", [True, False])
def test_nothing_may_differ_in_the_invariant_manner_only(schedule, is_invariant):
    lone = LonePasses(Case(replace(schedule, batch_invariant=is_invariant))).of(1, 0)
    assert (set(lone.bounds.values()) == {0.0}) is is_invariant


def test_noise_grows_with_the_error_and_is_never_nothing():
    wide = torch.ones(3, dtype=torch.float64)
    assert noise(torch.full((3,), 1.5), wide, 1e-7) == pytest.approx(4.0)
    assert noise(torch.ones(3), wide, 1e-7) > 0
