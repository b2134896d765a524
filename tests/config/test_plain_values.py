"""Values of other libraries become Python's, and an unknown name is answered with the nearest."""

from array import array

import numpy as np
import pytest
import torch

from refinfer.config.plain_values import as_plain, meant


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (np.int64(3), 3),
        (np.float32(0.5), 0.5),
        (np.bool_(1), True),
        (np.array([[1, 2]]), [[1, 2]]),
        (np.array(["a"]), ["a"]),
        (torch.tensor([1, 2]), [1, 2]),
        (torch.tensor(0.5, requires_grad=True), 0.5),
        (torch.tensor(True), True),
        (array("i", [1, 2]), [1, 2]),
    ],
)
def test_as_plain_gives_python_values(value, plain):
    given = as_plain(value)
    assert (given, type(given)) == (plain, type(plain))


def test_as_plain_leaves_other_values_alone():
    for value in (None, "a", b"a", memoryview(b"a"), [np.int64(3)], {"a": 1}, np.ndarray, 3):
        assert as_plain(value) is value


def test_meant_asks_after_the_nearest_name():
    assert meant("max_token", ["n", "max_tokens", "min_tokens"]) == "did you mean max_tokens? "
    assert meant("zzz", ["n", "max_tokens"]) == ""
