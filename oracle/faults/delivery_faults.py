"""Faults at the two ends of an engine: how a head is loaded, and what of an answer reaches the caller."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from oracle.faults.registry import Area, Fault, Replacement, one_replacement
from refinfer.engine.answer import Answer
from refinfer.engine.engine import LLMEngine
from refinfer.engine.output import RequestOutput
from refinfer.interfaces import AttentionView
from refinfer.model import Llama, checkpoint
from refinfer.model.model_input import ModelInput, RowLogits
from refinfer.model.safetensors_file import StoredWeight
from refinfer.sampling import StopStringWatcher

_HEAD = "lm_head.weight"
_tie_before_reading = checkpoint._tie_before_reading  # noqa: SLF001
_num_to_hold = StopStringWatcher._num_to_hold  # noqa: SLF001
_abort_request = LLMEngine.abort_request
_run = ModelInput.run


class _Noise(StoredWeight):
    """A weight that is nowhere."""

    def read(self) -> Tensor:
        """Gives what a fresh layer would have."""
        return 0.02 * torch.randn(self.shape, generator=torch.Generator().manual_seed(0))


def _give_head_noise(model: Llama, weight_by_name: dict[str, StoredWeight]) -> None:
    if model.config.tie_word_embeddings and _HEAD not in weight_by_name:
        shape = tuple(model.lm_head.weight.shape)
        weight_by_name[_HEAD] = _Noise(_HEAD, Path("nowhere"), "F32", shape, offset=0, num_bytes=0)
        return
    _tie_before_reading(model, weight_by_name)


def _tie_nothing(model: Llama) -> None:
    """Leaves embedding and head as they were read."""


tied_head_left_random = Fault(
    "tied_head_left_random",
    Area.LOADER,
    "the head of a tied checkpoint, which stores none, keeps its random initial values",
    (
        Replacement(checkpoint, "_tie_before_reading", _give_head_noise),
        Replacement(checkpoint, "_tie_after_reading", _tie_nothing),
    ),
    models=("tinygrad/tinygrad#13796 (1.01)",),
    component=("model/checkpoint.py",),
    needs=("tied head",),
    seen_by=("reference logits", "greedy", "loader"),
)


@one_replacement(
    "last_bit_follows_the_batch",
    Area.NUMERICS,
    "logits are one step of their dtype larger where several requests run in one pass",
    ModelInput,
    "run",
    models=("vllm-project/vllm#39146 (15.09)",),
    component=("model/model_input.py", "numerics/invariant.py", "numerics/products.py"),
    needs=("batch",),
    seen_by=("bitwise",),
)
def last_bit_follows_the_batch(self: ModelInput, model: Llama, view: AttentionView) -> list[RowLogits]:
    """Stands for a kernel that is chosen by the number of rows."""
    logits = _run(self, model, view)
    if len(self.num_tokens) == 1:
        return logits
    return [np.nextafter(own, own.dtype.type(np.inf)) for own in logits]


@one_replacement(
    "one_character_too_few_held_back",
    Area.STREAMING,
    "of a text that may begin a stop string the first character is shown too early, and then it is none",
    StopStringWatcher,
    "_num_to_hold",
    models=("vllm-project/vllm#3672 (11.03)",),
    component=("sampling/stop_strings.py",),
    needs=("stop string",),
    seen_by=("greedy", "symbolic", "text"),
)
def one_character_too_few_held_back(self: StopStringWatcher, text: str) -> int:
    """Counts from the second character."""
    return max(0, _num_to_hold(self, text) - 1)


@one_replacement(
    "abort_reaches_the_first_sample_only",
    Area.ABORT,
    "of a request with several samples an abort ends the first, and the others run on",
    LLMEngine,
    "abort_request",
    models=("vllm-project/vllm#14326 (13.01)",),
    component=("engine/engine.py",),
    needs=("abort", "n above 1"),
    seen_by=("lifecycle", "contract"),
)
def abort_reaches_the_first_sample_only(self: LLMEngine, request_id: str) -> RequestOutput:
    """Knows one sample."""
    samples = self._samples_by_id.get(request_id)
    if samples is None or samples.states[0].is_finished:
        return _abort_request(self, request_id)
    self.core.abort(samples.states[0])
    self._told_ids = (request_id,) if samples.is_finished else ()
    return self._output(request_id)


@one_replacement(
    "abort_loses_held_text",
    Area.ABORT,
    "text that was held back for a stop string is lost when the request is aborted",
    Answer,
    "abort",
    models=("vllm-project/vllm#8468 (11.04)",),
    component=("engine/answer.py",),
    needs=("abort", "stop string"),
    seen_by=("symbolic", "text"),
)
def abort_loses_held_text(self: Answer) -> None:
    """Shows nothing more."""


FAULTS = (
    tied_head_left_random,
    last_bit_follows_the_batch,
    one_character_too_few_held_back,
    abort_reaches_the_first_sample_only,
    abort_loses_held_text,
)
"""Faults of delivery."""
