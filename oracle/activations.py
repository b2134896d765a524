"""The activation collector: hooks that record what every module gives, under one set of names on every side."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from types import TracebackType
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from oracle.errors import ScenarioError
from refinfer.cache import CausalAttentionView
from refinfer.model import Llama

Activation = Float[Tensor, "tokens ..."]
"""What a module gives for each token of one request."""

ROTATED_QUERIES = "rotated_queries"
ROTATED_KEYS = "rotated_keys"
PER_HEAD_OUTPUT = "per_head_output"

_NAMES_IN_LAYER = (
    "input_layernorm",
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.v_proj",
    f"self_attn.{ROTATED_QUERIES}",
    f"self_attn.{ROTATED_KEYS}",
    f"self_attn.{PER_HEAD_OUTPUT}",
    "self_attn.o_proj",
    "post_attention_layernorm",
    "mlp.gate_proj",
    "mlp.up_proj",
    "mlp.down_proj",
)

_REFINFER_RECORD_BY_NAME = {ROTATED_QUERIES: "rope[0]", ROTATED_KEYS: "rope[1]", PER_HEAD_OUTPUT: "core"}


def canonical_names(num_layers: int) -> tuple[str, ...]:
    """Gives the names of the activations that every side shows, in the order of execution.

    A name is a module path of the checkpoint, except for three in each layer that are no module's output on every
    side: rotated queries, rotated keys and the per-head output, all of them laid out [tokens, heads, head_dim].
    """
    names = ["model.embed_tokens"]
    for layer_index in range(num_layers):
        path = f"model.layers.{layer_index}"
        names += [*(f"{path}.{name}" for name in _NAMES_IN_LAYER), path]
    return (*names, "model.norm", "lm_head")


class ActivationCollector:
    """Records what a module and every module below it give, while the context is open.

    A record is a detached copy, so that nothing done to the tensor later shows in it. Its name is the module's
    path, "" for the root; the tensors of a tuple are recorded by place, as in "self_attn.rope[0]"; other outputs
    are not recorded. Where a module is called several times the last call counts, so that after each pass the
    records are that pass's own. The hooks are gone when the context ends, however it ends.

    Args:
        module: The root of the tree.
        input_paths: Modules whose first positional input is recorded too, as in "self_attn.o_proj.input".

    Attributes:
        records: What was recorded, in the order in which it was computed.
    """

    def __init__(self, module: nn.Module, *, input_paths: Collection[str] = ()) -> None:
        self.records: dict[str, Tensor] = {}
        self._module = module
        self._input_paths = frozenset(input_paths)
        self._hooks = ExitStack()

    def __enter__(self) -> "ActivationCollector":  # noqa: PYI034 - the shape checks cannot read `Self` in a method
        """Attaches the hooks.

        Raises:
            ScenarioError: One of the `input_paths` is no module's.
        """
        module_by_path = dict(self._module.named_modules())
        unknown = self._input_paths - module_by_path.keys()
        if unknown:
            message = f"there is no module at {min(unknown)!r}, whose input is to be recorded; name a path of the tree"
            raise ScenarioError(message, unknown=unknown)
        for path, module in module_by_path.items():
            self._hooks.enter_context(module.register_forward_hook(partial(self._record_output, path)))
        for path in self._input_paths:
            hook = partial(self._record_input, path)
            self._hooks.enter_context(module_by_path[path].register_forward_pre_hook(hook))
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Removes the hooks and keeps the records."""
        self._hooks.close()

    def _record_output(self, path: str, _module: nn.Module, _inputs: tuple[Any, ...], output: object) -> None:
        if isinstance(output, tuple):
            for place, part in enumerate(output):
                self._record(f"{path}[{place}]", part)
        else:
            self._record(path, output)

    def _record_input(self, path: str, _module: nn.Module, inputs: tuple[Any, ...]) -> None:
        self._record(f"{path}.input", inputs[0])

    def _record(self, name: str, value: object) -> None:
        if isinstance(value, Tensor):
            self.records.pop(name, None)  # a later call takes a later place
            self.records[name] = value.detach().clone()


def name_refinfer_records(records: Mapping[str, Tensor], num_layers: int) -> dict[str, Activation]:
    """Puts what was recorded of a refinfer model under canonical names, in their order.

    Args:
        records: Of one pass, whatever its attention view.
        num_layers: Layers of the model.
    """
    activations = {}
    for name in canonical_names(num_layers):
        path, _, last = name.rpartition(".")
        activations[name] = records[
            f"{path}.{_REFINFER_RECORD_BY_NAME[last]}" if last in _REFINFER_RECORD_BY_NAME else name
        ]
    return activations


def collect_refinfer(model: Llama, token_ids: Sequence[int]) -> dict[str, Activation]:
    """Runs one request through a refinfer model without a cache, and gives its activations by canonical name."""
    attention_view = CausalAttentionView([len(token_ids)])
    with torch.no_grad(), ActivationCollector(model) as collector:
        model(torch.tensor(token_ids), torch.arange(len(token_ids)), attention_view)
    return name_refinfer_records(collector.records, model.config.num_layers)
