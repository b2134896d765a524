"""Each function belongs to one part, and the parts are the run."""

import time
from pathlib import Path

import pytest
import torch

import refinfer
from tests.benchmarks import profiling

pytestmark = pytest.mark.without_shape_checks

ROOT = Path(refinfer.__file__).parent


@pytest.mark.parametrize(
    ("function", "part"),
    [
        (("~", 0, "<built-in method torch._C._nn.linear>"), "products by weights"),
        (("~", 0, "<built-in method torch._ops.mkldnn._linear_pointwise>"), "products by weights"),
        (("~", 0, "<built-in method torch._C._nn.scaled_dot_product_attention>"), "attention"),
        (("~", 0, "<built-in method torch.bmm>"), "attention"),
        (("~", 0, "<method 'softmax' of 'torch._C.TensorBase' objects>"), "attention"),
        (("~", 0, "<method 'index_select' of 'torch._C.TensorBase' objects>"), "reading blocks"),
        (("~", 0, "<method 'mean' of 'torch._C.TensorBase' objects>"), profiling.OTHER_OPERATIONS),
        (("~", 0, "<built-in method builtins.len>"), profiling.REST),
        ((torch.nn.Module.__call__.__code__.co_filename, 1, "_call_impl"), profiling.MODULES),
        ((str(ROOT / "cache" / "paged_view.py"), 9, "attend"), "refinfer/cache, in Python"),
        ((time.__name__, 1, "f"), profiling.REST),
    ],
)
def test_function_belongs_to_a_part(function, part):
    assert profiling.part_of(*function) == part


@pytest.mark.parametrize("is_invariant", [False, True], ids=["plain", "exact"])
def test_parts_of_a_run_are_told_largest_first(tiny, is_invariant):
    seconds = profiling.seconds_by_part(tiny, batch_invariant=is_invariant)
    assert list(seconds.values()) == sorted(seconds.values(), reverse=True)
    expected = {"products by weights", "attention", "reading blocks", "refinfer/scheduler, in Python"}
    assert expected <= set(seconds), "each part is found by the names that torch gives its operations today"
