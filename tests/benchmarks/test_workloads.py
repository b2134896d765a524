"""The requests are those that the figures speak of, and the model is written once."""

import json

import pytest

from refinfer.errors import InvariantError
from tests.benchmarks import workloads

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 11,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 32,
    "tie_word_embeddings": True,
    "rms_norm_eps": 1e-6,
}

pytestmark = pytest.mark.usefixtures("_own_models")


def test_w1_has_the_published_numbers():
    work = workloads.w1()
    lengths = [len(prompt) for prompt in work.prompts]
    assert (len(lengths), sum(lengths), min(lengths), max(lengths)) == (48, 4361, 19, 251)
    assert (work.num_output_tokens, max(work.max_tokens)) == (3097, 183)
    assert work.longest <= 512


def test_w3_is_w1_behind_one_prefix_of_256_tokens():
    plain, shared = workloads.w1(), workloads.w3()
    prefixes = {prompt[:256] for prompt in shared.prompts}
    assert len(prefixes) == 1
    assert len(next(iter(prefixes))) == 256
    assert [prompt[256:] for prompt in shared.prompts] == list(plain.prompts)
    assert shared.max_tokens == plain.max_tokens


def test_spreads_ask_for_as_many_tokens_and_differ_more_and_more_in_length():
    works = [workloads.uneven(spread) for spread in workloads.SPREADS]
    totals = [work.num_output_tokens for work in works]
    assert max(totals) <= 1.02 * min(totals)
    ratios = [max(work.max_tokens) / min(work.max_tokens) for work in works]
    assert ratios[0] == 1
    assert ratios == sorted(ratios)
    assert len(set(ratios)) == len(ratios)
    assert works[0] == workloads.uneven("uniform"), "the same each time"


def test_first_cuts_requests_and_tokens():
    work = workloads.w1().first(2, 5)
    assert len(work.prompts) == 2
    assert work.max_tokens == (5, 5)
    assert workloads.w1().first(None) == workloads.w1()


def test_model_is_written_once(monkeypatch):
    folder = workloads.random_model("small", CONFIG)
    written = {file.name: file.stat().st_mtime_ns for file in folder.iterdir()}
    assert json.loads((folder / "config.json").read_text()) == CONFIG
    monkeypatch.setattr(workloads, "write_model", None)
    assert workloads.random_model("small", CONFIG) == folder
    assert {file.name: file.stat().st_mtime_ns for file in folder.iterdir()} == written


def test_model_of_another_shape_is_refused():
    workloads.random_model("other", CONFIG)
    with pytest.raises(InvariantError, match="holds another model"):
        workloads.random_model("other", {**CONFIG, "vocab_size": 12})
