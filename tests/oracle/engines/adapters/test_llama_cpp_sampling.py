"""Parameters become a chain of samplers, in one order, and what the library does not make is refused."""

import ctypes
import math

import pytest

MODULE = "oracle.engines.adapters.llama_cpp_sampling"


class LogitBias(ctypes.Structure):
    """A pair, as the library has it."""

    _fields_ = (("token", ctypes.c_int), ("bias", ctypes.c_float))


class Library:
    """Writes down what a chain is made of; a penalty of 0 and a temperature below it make no sampler."""

    llama_logit_bias = LogitBias

    def __init__(self):
        self.chain = []
        self.accepted = {}
        self.is_freed = False

    def llama_sampler_chain_default_params(self):
        return "default"

    def llama_sampler_chain_init(self, params):
        assert params == "default"
        return self.chain

    def llama_sampler_chain_add(self, chain, sampler):
        chain.append(sampler)

    def llama_sampler_accept(self, sampler, token_id):
        self.accepted.setdefault(sampler, []).append(token_id)

    def llama_sampler_sample(self, chain, context, place):
        return len(chain) + place + context

    def llama_sampler_free(self, chain):
        assert chain is self.chain
        self.is_freed = True

    def llama_sampler_init_logit_bias(self, vocab_size, number, pairs):
        return ("bias", vocab_size, tuple((pairs[place].token, pairs[place].bias) for place in range(number)))

    def llama_sampler_init_penalties(self, vocab_size, window, repetition, frequency, presence):
        assert window >= 1024
        return None if repetition <= 0 else ("penalties", vocab_size, repetition, frequency, presence)

    def __getattr__(self, name):
        kind = name.removeprefix("llama_sampler_init_")
        return lambda *values: None if values == (-1.0,) else (kind, *values)


@pytest.fixture
def library():
    return Library()


@pytest.fixture
def chain_of(import_with, library):
    """Gives a function that makes a chain; gives what it is made of."""
    module = import_with(MODULE, llama_cpp=library)

    def make(**parameters):
        library.chain.clear()
        module.SamplerChain(parameters, (3, 4, 3), 10, 7)
        return library.chain

    return make


@pytest.mark.parametrize(
    ("parameters", "due"),
    [
        ({}, [("greedy",)]),
        ({"temperature": 0.5}, [("temp", 0.5), ("dist", 7)]),
        ({"top_k": 3}, [("greedy",)]),
        (
            {"min_p": 0.1, "top_p": 0.9, "top_k": 3, "temperature": 2.0},
            [("temp", 2.0), ("top_k", 3), ("top_p", 0.9, 1), ("min_p", 0.1, 1), ("dist", 7)],
        ),
        ({"logit_bias": [[3, 2.0]]}, [("bias", 10, ((3, 2.0),)), ("greedy",)]),
        ({"repetition_penalty": 1.5}, [("penalties", 10, 1.5, 0.0, 0.0), ("greedy",)]),
        ({"presence_penalty": 1.5}, [("penalties", 10, 1.0, 0.0, 1.5), ("greedy",)]),
        (
            {"frequency_penalty": -0.5, "repetition_penalty": 2.0, "logit_bias": [[3, 2.0]]},
            [
                ("bias", 10, ((3, 2.0),)),
                ("penalties", 10, 2.0, 0.0, 0.0),
                ("penalties", 10, 1.0, -0.5, 0.0),
                ("greedy",),
            ],
        ),
    ],
)
def test_chain_has_the_samplers_in_their_order(chain_of, parameters, due):
    assert chain_of(**parameters) == due


def test_tokens_that_are_not_allowed_are_barred_before_biases(chain_of):
    (bias, _) = chain_of(allowed_token_ids=[1, 2, 3, 4, 5, 6, 7, 8], logit_bias=[[0, 5.0]])
    assert bias == ("bias", 10, ((0, -math.inf), (9, -math.inf), (0, 5.0)))


def test_repetition_penalty_counts_the_prompt_and_others_do_not(chain_of, library):
    chain_of(repetition_penalty=1.5, presence_penalty=1.0)
    assert library.accepted == {("penalties", 10, 1.5, 0.0, 0.0): [3, 4, 3]}


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"repetition_penalty": 0.0}, "makes no sampler of this repetition_penalty"),
        ({"temperature": -1.0}, "makes no sampler of this temperature"),
        ({"allowed_token_ids": [10]}, "outside of a vocabulary of 10"),
    ],
)
def test_what_makes_no_sampler_is_refused(chain_of, parameters, words):
    with pytest.raises(ValueError, match=words):
        chain_of(**parameters)


def test_chain_samples_in_a_context_and_is_let_go(import_with, library):
    chain = import_with(MODULE, llama_cpp=library).SamplerChain({}, (), 10, 7)
    assert chain.sample(100, 5) == 106
    chain.close()
    assert library.is_freed
