"""Does the invariant manner keep its promise on this machine? Asked of each operation when a model is loaded.

Nothing in a library's documentation promises that a row's bits do not depend on the rows beside it, so each
operation is tried at the model's own widths, dtype and number of threads: some rows together, the same rows in
smaller companies, and whoever gets other bits is named. What has passed once in a process is not tried again.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from refinfer.config import ModelConfig
from refinfer.errors import NumericsError
from refinfer.numerics.attention_check import (
    HALF_PRECISION,
    NUM_KEYS,
    attention_depends_on_company,
    drawn,
    order_probe,
)
from refinfer.numerics.dtypes import compute_dtype
from refinfer.numerics.manner import Numerics
from refinfer.numerics.products import (
    MAX_PROBED_ROWS,
    Bias,
    LinearProduct,
    PackedProduct,
    PlainProduct,
    TiledProduct,
    Weight,
)

RowFunction = Callable[[Tensor], Tensor]
"""Computes rows from rows; the first axis counts them."""

ProductMaker = Callable[[Weight, Bias | None], LinearProduct]

_NUM_ROWS = 300
_COMPANIES = (1, 2, 3, 17, 64, 255, 33, 8, 5, 16, 128, 100)
"""Sizes of company that are tried, those most likely to differ first."""

_MAX_STARTS = 32
"""Places at which a small company is tried: what a few rows hide, others show."""

_MAX_MULTIPLICATIONS = 2 * 10**10
"""Of one probed product, about a second of one core; sizes that would take more are left out from the end."""

_MIN_COMPANIES = 6
_passed: set[tuple[object, ...]] = set()
"""What was tried and kept the promise: the function, its widths, dtype and number of threads."""


def product_maker(weight: Weight, bias: Bias | None) -> ProductMaker:
    """Gives the cheapest way to multiply by weights of this shape that keeps the promise.

    Args:
        weight: One such weight.
        bias: Its bias, if there is one.

    Raises:
        NumericsError: No way does.
    """
    makers: list[partial[Any]] = [partial(TiledProduct)]
    if PackedProduct.is_available(weight.dtype):
        makers[:0] = [partial(PackedProduct, pads_single_row=pads) for pads in (False, True)]
    elif PlainProduct.multiplies_row_by_row(weight.dtype):
        makers.insert(0, partial(PlainProduct, max_rows=MAX_PROBED_ROWS))
    size = None
    for make in makers:
        multiply = vars(make.func)["__call__"]  # the code, and not the class, is what was tried
        attempt = (repr(make), multiply, weight.shape, bias is None, weight.dtype, torch.get_num_threads())
        if attempt in _passed:
            return make
        size = None
        for probe_weight, probe_bias, inputs in _probes(weight, bias):
            size = size or depends_on_company(make(probe_weight, probe_bias), inputs, weight.numel())
        if size is None:
            _passed.add(attempt)
            return make
    operation = f"the product by a weight of {tuple(weight.shape)}"
    raise _broken(operation, weight.dtype, size)


def _probes(weight: Weight, bias: Bias | None) -> Iterator[tuple[Weight, Bias | None, Tensor]]:
    """Yield weights, biases and rows on which a product is tried.

    In half precision drawn rows show next to nothing: what is added up in another order differs by about 2**-24 of
    the terms, and is rounded away. There the order itself is tried, on rows whose sums show it (`order_probe`). The
    order follows from the shape of a call and not from its numbers, so a weight of ones stands for all of its shape.
    """
    yield weight, bias, drawn(_NUM_ROWS, weight.shape[1], dtype=weight.dtype)
    if weight.dtype in HALF_PRECISION:
        zeros = None if bias is None else torch.zeros_like(bias)
        yield torch.ones_like(weight), zeros, order_probe(_NUM_ROWS, weight.shape[1], dtype=weight.dtype)


def depends_on_company(function: RowFunction, inputs: Tensor, multiplications_per_row: int = 1) -> int | None:
    """Gives the size of a company in which a row gets other bits than in the company of all; None if none was found.

    Args:
        function: Computes rows from rows.
        inputs: The rows of the company of all.
        multiplications_per_row: What a row costs, to bound the time.
    """
    together = function(inputs)
    num_left = _MAX_MULTIPLICATIONS // multiplications_per_row
    for num_tried, size in enumerate(_COMPANIES):
        num_starts = 1 if 2 * size > len(inputs) else max(2, min(_MAX_STARTS, len(inputs) // size))
        starts = [start * (len(inputs) - size) // max(1, num_starts - 1) for start in range(num_starts)]
        num_left -= num_starts * size
        if size >= len(inputs) or (num_left < 0 and num_tried >= _MIN_COMPANIES):
            continue
        for start in starts:
            rows = slice(start, start + size)
            if not torch.equal(function(inputs[rows].clone()), together[rows]):
                return size
    return None


def check_operations(numerics: Numerics, config: ModelConfig, dtype: torch.dtype) -> None:
    """Tries every operation of a manner but its products, at a model's widths.

    Raises:
        NumericsError: An operation's bits depend on company.
    """
    heads = (config.num_heads, config.num_kv_heads, config.head_dim)
    widths = (config.hidden_size, config.intermediate_size, *heads)
    manner = type(numerics)
    functions = (manner.rms_norm, manner.silu, manner.rotary_tables, manner.rotate, manner.attention)
    attempt = (*functions, *widths, dtype, torch.get_num_threads())
    if attempt in _passed:
        return
    # What half precision computes in float32 is tried in float32 as well, where nothing is rounded away.
    for own_dtype in dict.fromkeys((dtype, compute_dtype(dtype))):
        for name, function, inputs in _row_operations(numerics, config, own_dtype):
            size = depends_on_company(function, inputs)
            if size is not None:
                raise _broken(name, dtype, size)
    for num_keys in NUM_KEYS:
        size = attention_depends_on_company(numerics.attention, heads, dtype, num_keys)
        if size is not None:
            operation = f"attention over {num_keys} keys"
            raise _broken(operation, dtype, size)
    _passed.add(attempt)


def _row_operations(
    numerics: Numerics, config: ModelConfig, dtype: torch.dtype
) -> Iterator[tuple[str, RowFunction, Tensor]]:
    hidden, intermediate, head_dim = config.hidden_size, config.intermediate_size, config.head_dim
    scale = drawn(hidden, dtype=dtype)
    yield (
        f"the norm of {hidden} wide rows",
        lambda rows: numerics.rms_norm(rows, scale, config.norm_eps),
        drawn(_NUM_ROWS, hidden, dtype=dtype),
    )
    yield f"SiLU of {intermediate} wide rows", numerics.silu, drawn(_NUM_ROWS, intermediate, dtype=dtype)
    frequencies = drawn(head_dim // 2, dtype=compute_dtype(dtype)).abs()
    positions = torch.arange(_NUM_ROWS) * 7
    yield (
        f"rotary tables of {head_dim} wide heads",
        lambda rows: torch.cat(numerics.rotary_tables(rows, frequencies, dtype), dim=-1),
        positions,
    )

    def rotate(rows: Tensor) -> Tensor:
        vectors, cos, sin = torch.split(rows, [config.num_heads * head_dim, head_dim, head_dim], dim=-1)
        return numerics.rotate(vectors.reshape(len(rows), -1, head_dim), cos, sin)

    yield (
        f"the rotation of {head_dim} wide heads",
        rotate,
        drawn(_NUM_ROWS, (config.num_heads + 2) * head_dim, dtype=dtype),
    )


def _broken(operation: str, dtype: torch.dtype, size: int | None) -> NumericsError:
    threads = torch.get_num_threads()
    message = (
        f"{operation} in {str(dtype).removeprefix('torch.')} with {threads} threads gives a row other bits "
        f"when {size} rows run together than when more do; pass batch_invariant=False to run without the promise"
    )
    return NumericsError(message, operation=operation, dtype=dtype, threads=threads, size=size)
