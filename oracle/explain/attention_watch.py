"""What is attention handed in each layer? Stands before a pass's attention view and keeps what goes through."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor, nn

from oracle.explain.recording import LayerReads
from refinfer.attention_layout import AttentionLayout
from refinfer.cache.paged_view import BlocksAttentionView
from refinfer.interfaces import AttentionFunction, AttentionView
from refinfer.model import Llama
from refinfer.model.attention import AttentionCore
from refinfer.shapes import DenseKeys, DenseQueries, DenseValues, Keys, Queries, Values

Call = tuple[Tensor, Tensor, AttentionLayout]
"""Keys, values and layout of one call of the attention core."""


class WatchedView:
    """Hands on to a view, and keeps what the view hands to attention.

    Args:
        view: The view.
        calls: Takes every call.
    """

    def __init__(self, view: AttentionView, calls: list[Call]) -> None:
        self._view = view
        self._calls = calls

    def attend(
        self, layer_index: int, queries: Queries, keys: Keys, values: Values, attention: AttentionFunction
    ) -> Queries:
        """Gives what the view gives."""

        def watched(
            own_queries: DenseQueries, own_keys: DenseKeys, own_values: DenseValues, layout: AttentionLayout
        ) -> DenseQueries:
            calls.append((own_keys.detach().clone(), own_values.detach().clone(), layout))
            return attention(own_queries, own_keys, own_values, layout)

        calls: list[Call] = []
        output = self._view.attend(layer_index, queries, keys, values, watched)
        self._calls += self._in_packing_order(calls)
        return output

    def _in_packing_order(self, calls: list[Call]) -> list[Call]:
        """Cuts calls into rows and sorts them where requests were put together that are no neighbours."""
        if not isinstance(self._view, BlocksAttentionView):
            return calls
        rows = [row for call in calls for row in _rows_of(call)]
        pairs = zip(self._view.request_order, rows, strict=True)
        return [row for _, row in sorted(pairs, key=lambda pair: pair[0])]


@contextmanager
def watching_attention(model: Llama) -> Iterator[dict[int, list[Call]]]:
    """Keeps all calls of the attention core while the context is open, by layer."""
    calls_by_layer: dict[int, list[Call]] = {}

    def stand_before(core: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        layer_index = core.layer_index
        calls = calls_by_layer[int(str(layer_index))] = []
        return (*inputs[:-1], WatchedView(inputs[-1], calls))

    with ExitStack() as stack:
        for module in model.modules():
            if isinstance(module, AttentionCore):
                stack.enter_context(module.register_forward_pre_hook(stand_before))
        yield calls_by_layer


def reads_of_rows(calls: Sequence[Call]) -> list[LayerReads]:
    """Cuts the calls of one layer into rows: one for each row of each call's rectangle."""
    reads = []
    for keys, values, layout in calls:
        paddings = layout.num_padding_tokens
        for index in range(len(keys)):
            padding = paddings[index] if index < len(paddings) else 0
            tokens, room = slice(padding, layout.num_keys), slice(layout.num_keys, None)
            reads.append(
                LayerReads(
                    keys[index, :, tokens].transpose(0, 1),  # tokens kv_heads head_dim
                    values[index, :, tokens].transpose(0, 1),
                    bool(keys[index, :, room].isfinite().all() and values[index, :, room].isfinite().all()),
                    layout.num_keys - padding,
                )
            )
    return reads


def _rows_of(call: Call) -> Iterator[Call]:
    """Cuts a call whose rows end at columns of their own into one call for each row."""
    keys, values, layout = call
    for index, num_missing in enumerate(layout.num_missing_tokens):
        own_layout = AttentionLayout(layout.num_queries, layout.num_keys - num_missing)
        yield keys[index : index + 1], values[index : index + 1], own_layout
