"""Shows which operations give a row other bits when something changes that ought not to matter.

Reach for it when the self-check refuses to load a model, or to see what the note on exact numerics says on your
own machine.

    python debug/row_dependence.py
    python debug/row_dependence.py --dtypes float32,bfloat16 --threads 2

Each operation runs on many rows, and on fewer of them; on keys that are followed by more masked ones; in a batch, and
in a smaller one; and on numbers that lie elsewhere in memory. A cell counts the tries in which a row's bits changed, of
all tries, with the largest change.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.nn import functional

from oracle.commands.shared import chosen_dtypes, positive
from oracle.inspection.script import EXIT_SHOWN, run_script, say
from oracle.report import environment
from oracle.scenario import DTYPES
from refinfer.attention_layout import AttentionLayout
from refinfer.numerics import InvariantNumerics, PlainNumerics, dtype_by_name
from refinfer.numerics.products import PackedProduct, PlainProduct, TiledProduct

PLAIN, INVARIANT = PlainNumerics(), InvariantNumerics()
WIDTHS = (48, 64, 100, 172, 344, 576)
NUM_ROWS = 70
COUNTS = (1, 2, 3, 5, 8, 16, 17, 33, 64)
NUM_KEYS = 150

RowFunction = Callable[[Tensor], Tensor]


@dataclass
class Tally:
    """What was seen of one operation.

    Attributes:
        num_tries: Comparisons.
        num_changed: Those in which a bit changed.
        largest: The largest change.
    """

    num_tries: int = 0
    num_changed: int = 0
    largest: float = 0.0

    def see(self, own: Tensor, expected: Tensor) -> None:
        """Takes in one comparison."""
        self.num_tries += 1
        if not torch.equal(own, expected):
            self.num_changed += 1
            self.largest = max(self.largest, float((own.double() - expected.double()).abs().max()))

    def __str__(self) -> str:
        """Says it in a cell of the table."""
        changes = f" ({self.largest:.1e})" if self.num_changed else ""
        return f"{self.num_changed}/{self.num_tries}{changes}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the script and gives its exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtypes", default=",".join(DTYPES), help="comma-separated (default: %(default)s)")
    parser.add_argument("--threads", type=positive, default=1, help="threads of torch (default: %(default)s)")
    return run_script(_run, parser, arguments)


def _run(options: argparse.Namespace, console: Console) -> int:
    dtypes = chosen_dtypes(options.dtypes)
    before = torch.get_num_threads()
    torch.set_num_threads(options.threads)
    try:
        say(console, " · ".join(f"{name} {value}" for name, value in environment().items()))
        table = Table("operation", "what changes", *dtypes)
        columns = [list(_tallies(dtype_by_name(dtype))) for dtype in dtypes]
        for cells in zip(*columns, strict=True):
            table.add_row(*cells[0][:2], *(str(tally) for _, _, tally in cells))
        console.print(table)
    finally:
        torch.set_num_threads(before)
    return EXIT_SHOWN


def _tallies(dtype: torch.dtype) -> Iterator[tuple[str, str, Tally]]:
    rows = "rows beside it"
    yield "linear of the library", rows, _by_count(lambda width: PlainProduct(_weight(width, dtype), None), dtype)
    yield "linear of the library", "where the weight lies", _by_place(dtype)
    packed = (
        _by_count(lambda width: PackedProduct(_weight(width, dtype), None, pads_single_row=True), dtype)
        if PackedProduct.is_available(dtype)
        else Tally()
    )
    yield "linear, packed weight", rows, packed
    yield "linear, tiles of rows", rows, _by_count(lambda width: TiledProduct(_weight(width, dtype), None), dtype)
    yield "SiLU of the library", rows, _by_count(lambda _: PLAIN.silu, dtype)
    yield "SiLU by exp", rows, _by_count(lambda _: INVARIANT.silu, dtype)
    yield "RMSNorm", rows, _by_count(lambda width: _norm(width, dtype), dtype)
    yield "exp", rows, _by_count(lambda _: torch.exp, dtype)
    yield "cos", rows, _by_count(lambda _: torch.cos, dtype)
    for name, numerics, attend in (
        ("attention of the library", PLAIN, _attend_masked),
        ("attention in tiles", INVARIANT, _attend_in_tiles),
    ):
        yield name, "queries beside it", _by_queries(numerics, dtype)
        yield name, "masked keys behind it", _by_room(attend, dtype)
    for num_rows in (1, 2, 3, 4, 6, 8):
        name = f"batched products of {num_rows}"
        yield name, "products beside it", _by_batch(num_rows, dtype)
        yield name, "where a matrix lies", _by_place_in_a_batch(num_rows, dtype)


def _drawn(*shape: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
    return (torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * 2).to(dtype)


def _weight(width: int, dtype: torch.dtype) -> Tensor:
    return _drawn(width + 13, width, dtype=dtype, seed=1)


def _norm(width: int, dtype: torch.dtype) -> RowFunction:
    scale = _drawn(width, dtype=dtype, seed=2)
    return lambda rows: INVARIANT.rms_norm(rows, scale, 1e-5)


def _by_count(make: Callable[[int], RowFunction], dtype: torch.dtype) -> Tally:
    """Runs rows together, and fewer of them."""
    tally = Tally()
    for width in WIDTHS:
        function, inputs = make(width), _drawn(NUM_ROWS, width, dtype=dtype)
        together = function(inputs)
        for count in COUNTS:
            for start in (0, NUM_ROWS - count):
                rows = slice(start, start + count)
                tally.see(function(inputs[rows].clone()), together[rows])
    return tally


def _by_place(dtype: torch.dtype) -> Tally:
    """Runs one product on weights of equal values that begin at other places of a cache line."""
    tally = Tally()
    for width in (5, 7, 36, 64):
        weight, inputs = _drawn(width, width, dtype=dtype, seed=1), _drawn(1, width, dtype=dtype)
        expected = functional.linear(inputs, weight.clone())
        for offset in range(1, 16):
            tally.see(functional.linear(inputs, _moved(weight, offset)), expected)
    return tally


def _by_queries(numerics: PlainNumerics, dtype: torch.dtype) -> Tally:
    """Runs the last queries of a request together, and each by itself."""
    tally = Tally()
    for queries, keys, values in _heads(dtype):
        together = numerics.attention(queries, keys, values, AttentionLayout(NUM_KEYS, NUM_KEYS))
        for end in range(1, NUM_KEYS + 1, 7):
            own = numerics.attention(
                queries[:, :, end - 1 : end], keys[:, :, :end], values[:, :, :end], AttentionLayout(1, end)
            )
            tally.see(own, together[:, :, end - 1 : end])
    return tally


def _attend_in_tiles(query: Tensor, keys: Tensor, values: Tensor, num_keys: int) -> Tensor:
    return INVARIANT.attention(query, keys, values, AttentionLayout(1, num_keys))


def _attend_masked(query: Tensor, keys: Tensor, values: Tensor, num_keys: int) -> Tensor:
    mask = (torch.arange(keys.shape[2]) < num_keys)[None, None, None]
    return functional.scaled_dot_product_attention(query, keys, values, attn_mask=mask, enable_gqa=True)


def _by_batch(num_rows: int, dtype: torch.dtype) -> Tally:
    """Multiplies some rows by one matrix each in a batch, and in a smaller one."""
    tally = Tally()
    for rows, multiply, matrix in _batches(num_rows, dtype):
        together = multiply(rows, matrix)
        for count in COUNTS:
            for start in (0, NUM_ROWS - count):
                own = slice(start, start + count)
                tally.see(multiply(rows[own].clone(), matrix), together[own])
    return tally


def _by_place_in_a_batch(num_rows: int, dtype: torch.dtype) -> Tally:
    """Multiplies in a batch by a matrix that begins at other places of a cache line."""
    tally = Tally()
    for rows, multiply, matrix in _batches(num_rows, dtype):
        expected = multiply(rows, matrix)
        for offset in range(1, 16):
            tally.see(multiply(rows, _moved(matrix, offset)), expected)
    return tally


def _batches(num_rows: int, dtype: torch.dtype) -> Iterator[tuple[Tensor, Callable[[Tensor, Tensor], Tensor], Tensor]]:
    """Gives products as attention has them, scores of queries and means of values: many times rows, and one matrix."""

    def scores(queries: Tensor, keys: Tensor) -> Tensor:
        return torch.bmm(queries, keys.expand(len(queries), -1, -1).transpose(1, 2))

    def means(weights: Tensor, values: Tensor) -> Tensor:
        return torch.bmm(weights, values.expand(len(weights), -1, -1))

    for width, head_dim in ((64, 16), (192, 64), (320, 80)):
        matrix = _drawn(1, width, head_dim, dtype=dtype, seed=1)
        yield _drawn(NUM_ROWS, num_rows, head_dim, dtype=dtype), scores, matrix
        yield _drawn(NUM_ROWS, num_rows, width, dtype=dtype), means, matrix


def _moved(tensor: Tensor, offset: int) -> Tensor:
    """Copies a tensor to memory that begins so many numbers behind a cache line."""
    memory = torch.empty(tensor.numel() + offset, dtype=tensor.dtype)
    return memory[offset:].view_as(tensor).copy_(tensor)


def _by_room(attend: Callable[[Tensor, Tensor, Tensor, int], Tensor], dtype: torch.dtype) -> Tally:
    """Runs a query over its keys, and over the same with others behind them that it may not look at."""
    tally = Tally()
    for queries, keys, values in _heads(dtype):
        for end in range(1, NUM_KEYS + 1, 7):
            query = queries[:, :, end - 1 : end]
            exact = attend(query, keys[:, :, :end].clone(), values[:, :, :end].clone(), end)
            tally.see(attend(query, keys, values, end), exact)
    return tally


def _heads(dtype: torch.dtype) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Draws queries, keys and values of several shapes; the keys have room for whole tiles."""
    for num_heads, num_kv_heads, head_dim in ((1, 1, 16), (4, 2, 20), (6, 2, 64), (8, 1, 128)):
        keys, values = (_drawn(1, num_kv_heads, 256, head_dim, dtype=dtype, seed=seed) for seed in (1, 2))
        yield _drawn(1, num_heads, NUM_KEYS, head_dim, dtype=dtype), keys, values


if __name__ == "__main__":
    sys.exit(main())
