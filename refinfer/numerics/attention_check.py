"""Does attention give a query the same bits in any company? Tried at a model's widths, on the machine it runs on."""

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from refinfer.attention_layout import KEY_TILE, AttentionLayout, whole_tiles
from refinfer.numerics.tile_kernels import LibraryKernel, ProductKernel, TileKernel
from refinfer.numerics.tiled_attention import attend
from refinfer.shapes import DenseKeys, DenseQueries, DenseValues

Attention = Callable[[DenseQueries, DenseKeys, DenseValues, AttentionLayout], DenseQueries]
"""Computes attention over rectangles, as `Numerics.attention` does."""

HALF_PRECISION = (torch.bfloat16, torch.float16)
"""Dtypes in which a sum is rounded to so few bits that another order of adding up mostly goes unseen."""

NUM_KEYS = (1, 5, 64, 65, 330)
"""Lengths of the requests on which attention is tried."""

_passed: set[tuple[object, ...]] = set()
"""What was tried and kept the promise: the kernel's code, the widths, dtype and number of threads."""


def tile_kernel(num_heads: int, num_kv_heads: int, head_dim: int, dtype: torch.dtype) -> TileKernel:
    """Gives the cheapest way to attend over tiles that keeps the promise.

    The library's is given where no other does; `refinfer.numerics.check_operations` tries it at load, and refuses it
    where it breaks the promise as well.

    Args:
        num_heads: Query heads.
        num_kv_heads: Key/value heads.
        head_dim: Width of one head.
        dtype: Dtype of queries, keys and values.
    """
    if not ProductKernel.is_available(dtype):
        return LibraryKernel()
    kernel = ProductKernel()
    code = vars(ProductKernel)["__call__"]  # the code, and not the class, is what was tried
    attempt = (code, num_heads, num_kv_heads, head_dim, dtype, torch.get_num_threads())
    if attempt not in _passed:
        attention = partial(attend, kernel=kernel)
        for num_keys in NUM_KEYS:
            if attention_depends_on_company(attention, (num_heads, num_kv_heads, head_dim), dtype, num_keys):
                return LibraryKernel()
        _passed.add(attempt)
    return kernel


def attention_depends_on_company(
    attention: Attention, widths: tuple[int, int, int], dtype: torch.dtype, num_keys: int
) -> int | None:
    """Gives how many queries ran together when one got other bits than among all; None if none was found.

    Keys past a query's own place are other numbers when it runs alone, and so is where they lie.

    Args:
        attention: What is tried.
        widths: Query heads, key/value heads, and the width of one head.
        dtype: Dtype of queries, keys and values.
        num_keys: Tokens of the request on which it is tried.
    """
    for tensors in _probes(widths, dtype, num_keys):
        size = _depends_on_company(attention, tensors)
        if size is not None:
            return size
    return None


def _probes(
    widths: tuple[int, int, int], dtype: torch.dtype, num_keys: int
) -> Iterator[tuple[DenseQueries, DenseKeys, DenseValues]]:
    """Yield queries, keys and values to try: normal numbers, and in half precision those of `order_probe` as well.

    The first of these show in which order a score is added up, the others in which order values are.
    """
    num_heads, num_kv_heads, head_dim = widths
    query_shape, key_shape = (1, num_heads, num_keys, head_dim), (1, num_kv_heads, num_keys, head_dim)
    queries = drawn(*query_shape, dtype=dtype)
    keys, values = (drawn(*key_shape, dtype=dtype, seed=seed) for seed in (1, 2))
    yield queries, keys, values
    if dtype in HALF_PRECISION:
        # Scores have to differ by about one, or the softmax would round the difference away.
        score_keys = order_probe(num_kv_heads * num_keys, head_dim, dtype=dtype).view(key_shape)
        yield torch.full_like(queries, 2.0**10), score_keys, values
        columns = order_probe(num_kv_heads * head_dim, num_keys, dtype=dtype).view(1, num_kv_heads, head_dim, num_keys)
        yield torch.zeros_like(queries), keys, columns.transpose(2, 3).contiguous()


def _depends_on_company(attention: Attention, tensors: tuple[DenseQueries, DenseKeys, DenseValues]) -> int | None:
    queries, keys, values = tensors
    num_keys = keys.shape[2]
    num_queries = min(num_keys, 70)
    together = attention(queries[:, :, -num_queries:], keys, values, AttentionLayout(num_queries, num_keys))
    first = num_keys - num_queries
    for size in (1, 2, 20):
        for start in {0, 1, num_queries // 2, num_queries - size}:
            stop = start + size
            if start < 0 or stop > num_queries:
                continue
            room = (0, 0, 0, whole_tiles(first + stop) + KEY_TILE - first - stop)
            own_keys, own_values = (functional.pad(rows[:, :, : first + stop], room) for rows in (keys, values))
            layout = AttentionLayout(size, first + stop)
            own = attention(queries[:, :, first + start : first + stop], own_keys, own_values, layout)
            if not torch.equal(own, together[:, :, start:stop]):
                return size
    return _decoding_depends_on_company(attention, together, (queries, keys, values))


def _decoding_depends_on_company(
    attention: Attention, together: Tensor, drawn_tensors: tuple[Tensor, Tensor, Tensor]
) -> int | None:
    """Gives how many requests decoded in one call when a query got other bits than in its prompt; None if none did.

    They are as many beginnings of one request over as many tiles of keys, each of which runs its last token.
    """
    queries, keys, values = drawn_tensors
    num_keys, num_queries, width = keys.shape[2], together.shape[2], whole_tiles(keys.shape[2])
    for size in (2, 17):
        most_missing = min(num_queries, num_keys - (width - KEY_TILE)) - 1
        missing = tuple(place * most_missing // (size - 1) for place in range(size))
        places = [num_keys - 1 - own for own in missing]
        room = (0, 0, 0, width - num_keys)
        rows = [functional.pad(tensor, room).repeat(size, 1, 1, 1) for tensor in (keys, values)]
        layout = AttentionLayout(1, num_keys, (0,) * size, missing)
        own = attention(queries[0, :, places].transpose(0, 1)[:, :, None], rows[0], rows[1], layout)
        expected = together[0, :, [place - (num_keys - num_queries) for place in places]].transpose(0, 1)
        if not torch.equal(own[:, :, 0], expected):
            return size
    return None


def drawn(*shape: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
    """Gives normal numbers, the same at every load."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).mul_(3).to(dtype)


def order_probe(num_rows: int, width: int, *, dtype: torch.dtype, seed: int = 0) -> Tensor:
    """Return rows whose sums show in which order they were added up, also when rounded to 8 bits.

    Pairs of +2**13 and -2**13 stand at random places among numbers of about 2**-13. A small number is lost when it
    is added in float32 while one half of a pair is in the sum, and stays otherwise. So two orders keep different
    small numbers, and what is left of them differs in its leading bits. Ones and large numbers are used like this by
    FPRev (Xie et al. 2025, arXiv 2411.00442) to find the order itself.
    """
    generator = torch.Generator().manual_seed(seed)
    small = torch.rand(num_rows, width, generator=generator).add_(1).mul_(2.0**-13)
    ranks = torch.rand(num_rows, width, generator=generator).argsort(dim=1)
    num_pairs = torch.randint(1, max(2, width // 8 + 1), (num_rows, 1), generator=generator)
    signs = torch.where(ranks % 2 == 0, 2.0**13, -(2.0**13))
    return torch.where(ranks < 2 * num_pairs, signs, small).to(dtype)
