"""A context runs batches as they are written, and what the library refuses is an error."""

import ctypes
from types import SimpleNamespace

import numpy as np
import pytest

from oracle.engines.adapter import Refused
from oracle.engines.adapters.llama_cpp_slots import Token

MODULE = "oracle.engines.adapters.llama_cpp_context"

KNOBS = {"n_batch": 8, "n_ubatch": 4, "kv_unified": True}


class Library:
    """Stands for the library: writes down what it is asked."""

    GGML_TYPE_F32 = 0
    LLAMA_FLASH_ATTN_TYPE_DISABLED = 0

    def __init__(self):
        self.asked = []
        self.model = "model"
        self.context = "context"
        self.status = 0
        self.can_forget = True
        self.batches = []
        self.params = None

    def llama_log_callback(self, function):
        return function

    def llama_model_load_from_file(self, path, _):
        assert path == b"model.gguf"
        return self.model

    def llama_context_default_params(self):
        return SimpleNamespace()

    def llama_init_from_model(self, model, params):
        assert model == self.model
        self.params = params
        return self.context

    def llama_vocab_n_tokens(self, _):
        return 3

    def llama_get_memory(self, _):
        return "memory"

    def llama_batch_init(self, size, _, num_sequences):
        assert num_sequences == 1
        return SimpleNamespace(
            n_tokens=0,
            token=[None] * size,
            pos=[None] * size,
            n_seq_id=[None] * size,
            seq_id=[[None] for _ in range(size)],
            logits=[None] * size,
        )

    def llama_decode(self, context, batch):
        assert context == self.context
        places = range(batch.n_tokens)
        self.batches.append([(batch.token[i], batch.pos[i], batch.seq_id[i][0], batch.logits[i]) for i in places])
        return self.status

    def llama_get_logits_ith(self, _, place):
        self.row = (ctypes.c_float * 3)(place, 1.0, 2.0)
        return ctypes.cast(self.row, ctypes.POINTER(ctypes.c_float))

    def llama_memory_seq_rm(self, *arguments):
        self.asked.append(arguments)
        return self.can_forget

    def __getattr__(self, name):
        return lambda *arguments: self.asked.append((name, *arguments))


@pytest.fixture
def library():
    return Library()


@pytest.fixture
def make(import_with, library):
    """Gives a function that makes a context of the stand-in."""
    module = import_with(MODULE, llama_cpp=library)
    return lambda: module.LlamaContext("model.gguf", KNOBS)


def test_context_is_float32_and_has_the_knobs(make, library):
    assert make().vocab_size == 3
    params = vars(library.params)
    assert (params["type_k"], params["type_v"], params["flash_attn_type"]) == (0, 0, 0)
    assert {name: params[name] for name in KNOBS} == KNOBS
    assert params["n_ctx"] == params["n_seq_max"] * 256


def test_batch_is_written_as_it_is(make, library):
    context = make()
    context.decode([Token(5, 0, 2, wants_logits=False), Token(6, 1, 2, wants_logits=True)])
    context.decode([Token(7, 9, 3, wants_logits=True)])
    assert library.batches == [[(5, 0, 2, False), (6, 1, 2, True)], [(7, 9, 3, True)]]


def test_logits_are_a_copy(make, library):
    row = make().logits(4)
    library.row[0] = 99.0
    np.testing.assert_array_equal(row, np.array([4.0, 1.0, 2.0], np.float32))


def test_failed_decode_is_an_error(make, library):
    context = make()
    library.status = -1
    with pytest.raises(RuntimeError, match="llama_decode gave -1 for 1 tokens"):
        context.decode([Token(5, 0, 0, wants_logits=True)])


def test_sequences_are_forgotten_and_forked(make, library):
    context = make()
    library.asked.clear()
    context.forget(3, 5)
    context.share(1, 2)
    context.clear()
    assert library.asked == [
        ("memory", 3, 5, -1),
        ("llama_memory_seq_cp", "memory", 1, 2, -1, -1),
        ("llama_memory_clear", "memory", True),
    ]


def test_sequence_that_cannot_be_forgotten_is_an_error(make, library):
    context = make()
    library.can_forget = False
    with pytest.raises(RuntimeError, match="does not take sequence 3 away from 5 on"):
        context.forget(3, 5)


@pytest.mark.parametrize(("part", "words"), [("model", "does not load the model"), ("context", "makes no context of")])
def test_what_the_library_does_not_make_is_refused(make, library, part, words):
    setattr(library, part, None)
    with pytest.raises(Refused, match=words):
        make()


def test_close_lets_go_of_all_of_it(make, library):
    context = make()
    library.asked.clear()
    context.close()
    assert [asked[0] for asked in library.asked] == ["llama_batch_free", "llama_free", "llama_model_free"]
