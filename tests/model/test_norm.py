"""RMSNorm as a module: its own epsilon and its own scale."""

import numpy as np
import pytest
import torch
from torch import nn

from refinfer.model.norm import RMSNorm
from refinfer.numerics import PlainNumerics


@pytest.mark.parametrize("eps", [1e-6, 1e-2, 0.5])
def test_norm_divides_by_the_root_mean_square_with_its_own_epsilon(eps):
    norm = RMSNorm(3, eps=eps, dtype=torch.float64, numerics=PlainNumerics())
    norm.weight = nn.Parameter(torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64), requires_grad=False)
    output = norm(torch.tensor([[1.0, 2.0, 2.0]], dtype=torch.float64))
    expected = np.array([1.0, -4.0, 1.0]) / np.sqrt(3.0 + eps)
    np.testing.assert_allclose(output[0].numpy(), expected, rtol=1e-14)


def test_every_norm_of_a_model_has_the_epsilon_of_its_config(model_by_dtype):
    norms = [module for module in model_by_dtype["float32"].modules() if isinstance(module, RMSNorm)]
    assert [norm.eps for norm in norms] == [1e-5] * 5
