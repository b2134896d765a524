"""Packed tokens as a rectangle and back, and memory that shows when it is read unwritten."""

import pytest
import torch

from refinfer.cache.dense import to_dense, to_packed, unwritten


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_unwritten_memory_is_nan(dtype):
    memory = unwritten(2, 3, dtype=dtype)
    assert memory.shape == (2, 3)
    assert memory.dtype == dtype
    assert memory.isnan().all()


def test_to_dense_puts_heads_before_tokens():
    packed = torch.arange(24.0).reshape(4, 2, 3)  # tokens heads head_dim
    dense = to_dense(packed)
    assert dense.shape == (1, 2, 4, 3)
    assert torch.equal(dense[0, 1, 2], packed[2, 1])


def test_to_dense_gives_each_request_its_row():
    packed = torch.arange(24.0).reshape(4, 2, 3)
    dense = to_dense(packed, 4)
    assert dense.shape == (4, 2, 1, 3)
    assert torch.equal(dense[3, 1, 0], packed[3, 1])


@pytest.mark.parametrize("num_rows", [1, 2, 4])
def test_to_packed_undoes_to_dense(num_rows):
    packed = torch.arange(24.0).reshape(4, 2, 3)
    assert torch.equal(to_packed(to_dense(packed, num_rows)), packed)
