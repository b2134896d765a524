"""A linear layer: its weight as stored, its bias where it has one, and no memory before loading."""

import pytest
import torch
from torch import nn

from refinfer.model.linear import Linear, unloaded_parameter
from refinfer.numerics import PlainNumerics


def test_unloaded_parameter_has_a_shape_and_no_memory():
    parameter = unloaded_parameter(10**6, 10**6, dtype=torch.float64)
    assert parameter.shape == (10**6, 10**6)
    assert parameter.dtype is torch.float64
    assert parameter.is_meta
    assert not parameter.requires_grad


@pytest.mark.parametrize(
    ("bias", "expected"),
    [(None, [[11.0, 23.0, 35.0]]), ([10.0, 20.0, 30.0], [[21.0, 43.0, 65.0]])],
    ids=["without-bias", "with-bias"],
)
def test_linear_multiplies_by_the_weight_and_adds_the_bias(bias, expected):
    linear = Linear(2, 3, has_bias=bias is not None, dtype=torch.float32, numerics=PlainNumerics())
    linear.weight = nn.Parameter(torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), requires_grad=False)
    if bias is not None:
        linear.bias = nn.Parameter(torch.tensor(bias), requires_grad=False)
    assert linear(torch.tensor([[1.0, 5.0]])).tolist() == expected


def test_linear_keeps_its_product_until_it_is_readied_again():
    """A packed weight is a copy, so that what stands in the module later would not count by itself."""
    linear = Linear(2, 2, has_bias=False, dtype=torch.float32, numerics=PlainNumerics())
    linear.weight = nn.Parameter(torch.eye(2), requires_grad=False)
    rows = torch.tensor([[1.0, 5.0]])
    assert linear(rows).tolist() == [[1.0, 5.0]]
    linear.weight = nn.Parameter(3 * torch.eye(2), requires_grad=False)
    linear.prepare()
    assert linear(rows).tolist() == [[3.0, 15.0]]


@pytest.mark.parametrize("has_bias", [False, True])
def test_linear_has_the_parameters_that_a_checkpoint_has(has_bias):
    linear = Linear(2, 3, has_bias=has_bias, dtype=torch.float32, numerics=PlainNumerics())
    shapes = {name: tuple(parameter.shape) for name, parameter in linear.named_parameters()}
    assert shapes == ({"weight": (3, 2), "bias": (3,)} if has_bias else {"weight": (3, 2)})
