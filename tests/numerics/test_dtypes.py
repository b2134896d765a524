"""Dtypes by name, and the dtype that sensitive sums are computed in."""

import pytest
import torch

from refinfer.config.engine_config import DTYPES
from refinfer.errors import ConfigError
from refinfer.numerics import compute_dtype, dtype_by_name


@pytest.mark.parametrize("name", [name for name in DTYPES if name != "auto"])
def test_dtype_by_name_knows_every_dtype_that_a_run_may_ask_for(name):
    assert dtype_by_name(name) is getattr(torch, name)


@pytest.mark.parametrize("name", ["auto", "float8", "torch.float32", "FLOAT32", "int8", "half", ""])
def test_dtype_by_name_refuses_an_unknown_name(name):
    with pytest.raises(ConfigError, match="choose one of float32, float64, bfloat16, float16") as caught:
        dtype_by_name(name)
    assert repr(name) in str(caught.value)


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ],
    ids=str,
)
def test_compute_dtype_widens_half_precision_alone(dtype, expected):
    assert compute_dtype(dtype) is expected
