"""The first divergence is named: the module that runs first among those that differ, and its first position."""

import numpy as np
import pytest
import torch

from oracle.divergence import first_divergence
from oracle.errors import ActivationMismatch

ORDER = ("embed", "layer0", "layer1", "norm")


@pytest.fixture
def activations():
    """Four activations of three positions, one of them with an axis of heads."""
    generator = torch.Generator().manual_seed(0)
    shape_by_name = {"embed": (3, 4), "layer0": (3, 4), "layer1": (3, 2, 5), "norm": (3, 4)}
    return {name: torch.randn(*shape, generator=generator) for name, shape in shape_by_name.items()}


def with_difference(activations, name, position, difference=1.0):
    """A copy in which one element of one position is off."""
    copy = {key: value.clone() for key, value in activations.items()}
    copy[name].view(3, -1)[position, -1] += difference
    return copy


def test_equal_activations_have_no_divergence(activations):
    assert first_divergence(activations, with_difference(activations, "norm", 0, 0.0), ORDER, 0.0) is None


@pytest.mark.parametrize(("name", "before"), list(zip(ORDER, (None, *ORDER[:-1]), strict=True)))
@pytest.mark.parametrize("position", [0, 1, 2])
def test_divergence_names_module_position_and_what_still_agreed(activations, name, before, position):
    divergence = first_divergence(with_difference(activations, name, position), activations, ORDER, 1e-3)
    assert divergence is not None
    assert (divergence.name, divergence.position, divergence.last_agreeing) == (name, position, before)
    assert divergence.largest == pytest.approx(1.0)


def test_divergence_names_the_earliest_of_several_modules(activations):
    """Every module after the wrong one inherits its error."""
    subject = with_difference(activations, "norm", 0, 100.0)
    subject = with_difference(subject, "layer1", 2, 10.0)
    subject = with_difference(subject, "layer0", 1)
    divergence = first_divergence(subject, activations, ORDER, 1e-3)
    assert divergence is not None
    assert (divergence.name, divergence.position) == ("layer0", 1)


def test_divergence_names_the_earliest_of_several_positions(activations):
    subject = with_difference(with_difference(activations, "layer1", 2, 10.0), "layer1", 1)
    divergence = first_divergence(subject, activations, ORDER, 1e-3)
    assert divergence is not None
    assert divergence.position == 1
    assert divergence.largest == pytest.approx(10.0)


def test_order_of_execution_decides_not_order_of_recording(activations):
    subject = with_difference(with_difference(activations, "layer1", 0), "layer0", 0)
    backwards = dict(reversed(subject.items()))
    divergence = first_divergence(backwards, activations, ORDER, 1e-3)
    assert divergence is not None
    assert divergence.name == "layer0"


@pytest.mark.parametrize("share", [0.9, 1.1])
def test_bound_is_a_share_of_the_largest_value(activations, share):
    largest = float(activations["layer0"].abs().max())
    subject = with_difference(activations, "layer0", 1, share * 0.01 * largest)
    divergence = first_divergence(subject, activations, ORDER, 0.01)
    assert (divergence is not None) == (share > 1)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("sides", [("subject",), ("reference",), ("subject", "reference")])
def test_divergence_sees_values_that_are_not_finite(activations, value, sides):
    """Also where both sides hold them: nothing has been shown to agree there."""
    broken = with_difference(activations, "layer0", 1, value)
    subject = broken if "subject" in sides else activations
    reference = broken if "reference" in sides else activations
    divergence = first_divergence(subject, reference, ORDER, 1e9)
    assert divergence is not None
    assert (divergence.name, divergence.position, divergence.last_agreeing) == ("layer0", 1, "embed")


def test_dtypes_and_libraries_may_differ(activations):
    reference = {name: value.double().numpy() for name, value in activations.items()}
    assert first_divergence(activations, reference, ORDER, 0.0) is None
    halves = {name: value.bfloat16() for name, value in activations.items()}
    assert first_divergence(halves, reference, ORDER, 0.01) is None
    assert first_divergence(halves, reference, ORDER, 1e-6) is not None


def test_all_zero_activation_agrees_with_itself():
    zeros = {"embed": torch.zeros(2, 3)}
    assert first_divergence(zeros, zeros, ORDER, 0.0) is None


def test_names_of_one_side_only_are_left_out(activations):
    subject = {**with_difference(activations, "layer0", 0), "extra": torch.ones(3)}
    del subject["layer0"]
    assert first_divergence(subject, activations, (*ORDER, "extra"), 0.0) is None


def test_first_divergence_refuses_other_shapes(activations):
    subject = {**activations, "layer1": activations["layer1"][:2]}
    with pytest.raises(ActivationMismatch, match="layer1 has shape"):
        first_divergence(subject, activations, ORDER, 1e9)


def test_first_divergence_refuses_sides_that_share_nothing(activations):
    with pytest.raises(ActivationMismatch, match="share no activation"):
        first_divergence(activations, {"other": np.zeros((3, 4))}, ORDER, 1e9)
    with pytest.raises(ActivationMismatch, match="share no activation"):
        first_divergence({}, {}, ORDER, 1e9)


def test_divergence_is_said_in_one_sentence(activations):
    early = first_divergence(with_difference(activations, "embed", 2), activations, ORDER, 0.0)
    late = first_divergence(with_difference(activations, "norm", 1), activations, ORDER, 0.0)
    assert str(early) == "first divergence at embed, position 2: 1 off where 0 is permitted; it is the first module"
    assert str(late) == "first divergence at norm, position 1: 1 off where 0 is permitted; layer1 still agrees"
