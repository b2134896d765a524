"""What of llama.cpp is used: a model, a context with sequences in it, and a batch that is decoded."""

import ctypes
from collections.abc import Sequence
from typing import Any

import llama_cpp
import numpy as np

from oracle.engines.adapter import Refused
from oracle.engines.adapters.llama_cpp_slots import Token

NUM_SEQUENCES = 16
"""How many sequences a context holds at once."""

TOKENS_PER_SEQUENCE = 256

_SILENCE = llama_cpp.llama_log_callback(lambda _level, _text, _data: None)
"""Kept here, since the library calls it as long as it lives."""


class LlamaContext:
    """A model that is loaded, and a context of it.

    Args:
        path: The GGUF file.
        knobs: Values of "n_batch", "n_ubatch" and "kv_unified".

    Raises:
        Refused: The library does not load the file, or makes no context.
    """

    def __init__(self, path: str, knobs: dict[str, Any]) -> None:
        llama_cpp.llama_log_set(_SILENCE, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        self._model = llama_cpp.llama_model_load_from_file(path.encode(), llama_cpp.llama_model_default_params())
        if not self._model:
            message = "llama.cpp does not load the model"
            raise Refused(message)
        self.handle = llama_cpp.llama_init_from_model(self._model, _context_params(knobs))
        if not self.handle:
            llama_cpp.llama_model_free(self._model)
            message = f"llama.cpp makes no context of {knobs}"
            raise Refused(message)
        self.vocab_size = int(llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self._model)))
        self._memory = llama_cpp.llama_get_memory(self.handle)
        self._num_batch = int(knobs["n_batch"])
        self._batch = llama_cpp.llama_batch_init(self._num_batch, 0, 1)

    def decode(self, tokens: Sequence[Token]) -> None:
        """Runs tokens.

        Raises:
            RuntimeError: The library says that it did not.
        """
        batch = self._batch
        batch.n_tokens = len(tokens)
        for place, token in enumerate(tokens):
            batch.token[place] = token.token_id
            batch.pos[place] = token.position
            batch.n_seq_id[place] = 1
            batch.seq_id[place][0] = token.sequence
            batch.logits[place] = token.wants_logits
        status = llama_cpp.llama_decode(self.handle, batch)
        if status != 0:
            message = f"llama_decode gave {status} for {len(tokens)} tokens"
            raise RuntimeError(message)

    def logits(self, place: int) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Gives a copy of the logits after the token at a place of the last batch."""
        pointer = llama_cpp.llama_get_logits_ith(self.handle, place)
        row: np.ndarray[Any, np.dtype[np.float32]] = np.ctypeslib.as_array(pointer, shape=(self.vocab_size,)).copy()
        return row

    def forget(self, sequence: int, first: int = 0) -> None:
        """Takes a sequence's keys and values away, from a position on.

        Raises:
            RuntimeError: The library says that it cannot.
        """
        if not llama_cpp.llama_memory_seq_rm(self._memory, sequence, first, -1):
            message = f"llama_memory_seq_rm does not take sequence {sequence} away from {first} on"
            raise RuntimeError(message)

    def share(self, source: int, target: int) -> None:
        """Gives a sequence the keys and values of another."""
        llama_cpp.llama_memory_seq_cp(self._memory, source, target, -1, -1)

    def clear(self) -> None:
        """Takes everything away."""
        llama_cpp.llama_memory_clear(self._memory, True)  # noqa: FBT003 - the library's own order

    def close(self) -> None:
        """Lets go of all of it."""
        llama_cpp.llama_batch_free(self._batch)
        llama_cpp.llama_free(self.handle)
        llama_cpp.llama_model_free(self._model)


def _context_params(knobs: dict[str, Any]) -> Any:
    """Everything is float32, which flash attention is not: it casts such keys and values to float16 all the same."""
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = NUM_SEQUENCES * TOKENS_PER_SEQUENCE
    params.n_seq_max = NUM_SEQUENCES
    params.n_batch = knobs["n_batch"]
    params.n_ubatch = knobs["n_ubatch"]
    params.n_threads = params.n_threads_batch = 1
    params.type_k = params.type_v = llama_cpp.GGML_TYPE_F32
    params.kv_unified = knobs["kv_unified"]
    params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
    params.no_perf = True
    return params
