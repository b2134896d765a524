"""What config.json says of a GGUF file, and which files are refused by name."""

import pytest

from refinfer.config.model_config import ModelConfig
from refinfer.errors import CheckpointError, UnsupportedModelError
from refinfer.model.gguf_config import Metadata, raw_config, raw_generation_config

VALUES = {
    "general.architecture": "llama",
    "llama.context_length": 128,
    "llama.embedding_length": 64,
    "llama.block_count": 2,
    "llama.feed_forward_length": 96,
    "llama.vocab_size": 50,
    "llama.attention.head_count": 4,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
}


@pytest.fixture
def metadata():
    """The key-value pairs of a good file with some of them changed, or taken away where the value is None."""

    def build(**changes):
        changed = VALUES | {key.replace("__", "."): value for key, value in changes.items()}
        return Metadata({key: value for key, value in changed.items() if value is not None}, "tiny.gguf")

    return build


def config_of(metadata, *weight_names):
    return ModelConfig.from_raw_config(raw_config(metadata, weight_names=set(weight_names)))


def test_raw_config_gives_every_width(metadata):
    config = config_of(metadata(llama__attention__head_count_kv=2))
    assert (config.vocab_size, config.hidden_size, config.intermediate_size) == (50, 64, 96)
    assert (config.num_layers, config.num_heads, config.num_kv_heads, config.head_dim) == (2, 4, 2, 16)
    assert (config.max_position_embeddings, config.norm_eps) == (128, 1e-5)


def test_raw_config_takes_what_llama_cpp_takes_for_what_is_not_said(metadata):
    config = config_of(metadata(llama__vocab_size=None, tokenizer__ggml__tokens=["a"] * 7))
    assert (config.vocab_size, config.num_kv_heads, config.head_dim) == (7, 4, 16)
    assert (config.rope.rope_type, config.rope.rope_theta) == ("default", 10000.0)


def test_raw_config_takes_heads_of_their_own_width(metadata):
    widths = dict.fromkeys(["llama__attention__key_length", "llama__attention__value_length"], 24)
    assert config_of(metadata(**widths, llama__rope__dimension_count=24)).head_dim == 24


def test_raw_config_reads_linear_scaling(metadata):
    changes = {"llama__rope__scaling__type": "linear", "llama__rope__scaling__factor": 4.0}
    rope = config_of(metadata(**changes, llama__rope__freq_base=500.0)).rope
    assert (rope.rope_type, rope.rope_theta, rope.factor) == ("linear", 500.0, 4.0)


@pytest.mark.parametrize("is_tied", [True, False])
def test_raw_config_ties_the_head_unless_the_file_has_one(metadata, is_tied):
    names = ["token_embd.weight"] if is_tied else ["token_embd.weight", "output.weight"]
    assert config_of(metadata(), *names).tie_word_embeddings == is_tied


def test_raw_config_sees_biases(metadata):
    assert not config_of(metadata()).attention_bias
    config = config_of(metadata(), "blk.0.attn_q.bias", "blk.0.ffn_up.bias")
    assert config.attention_bias
    assert config.mlp_bias


def test_raw_generation_config_names_every_token_that_ends_an_answer(metadata):
    ids = {f"tokenizer__ggml__{name}_token_id": token_id for name, token_id in [("bos", 1), ("eos", 2), ("eot", 3)]}
    assert raw_generation_config(metadata(**ids)) == {"bos_token_id": 1, "eos_token_id": [2, 3]}


def test_raw_generation_config_names_one_token_once(metadata):
    ids = {f"tokenizer__ggml__{name}_token_id": 2 for name in ("eos", "eot", "padding")}
    assert raw_generation_config(metadata(**ids)) == {"eos_token_id": 2, "pad_token_id": 2}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"general__architecture": "qwen2"}, "holds architecture 'qwen2'; only 'llama' is implemented"),
        ({"general__architecture": None}, "holds architecture None"),
        ({"llama__expert_count": 8}, "sets llama.expert_count to 8, which is not implemented"),
        ({"llama__logit_scale": 0.5}, "sets llama.logit_scale to 0.5"),
        ({"llama__attention__sliding_window": 4096}, "sets llama.attention.sliding_window to 4096"),
        ({"llama__rope__scaling__type": "yarn"}, "has RoPE scaling 'yarn'"),
        ({"llama__rope__dimension_count": 8}, "heads with different widths are not implemented"),
    ],
)
def test_raw_config_refuses_what_is_not_implemented(metadata, changes, message):
    with pytest.raises(UnsupportedModelError, match=message):
        raw_config(metadata(**changes), weight_names=set())


def test_raw_config_refuses_llama3_scaling(metadata):
    with pytest.raises(UnsupportedModelError, match=r"holds rope_freqs\.weight: llama3 RoPE scaling"):
        raw_config(metadata(), weight_names={"rope_freqs.weight"})


def test_raw_config_lets_neutral_settings_pass(metadata):
    assert config_of(metadata(llama__expert_count=0, llama__rope__scaling__type="none")).num_layers == 2


def test_raw_config_refuses_a_file_without_a_width(metadata):
    with pytest.raises(CheckpointError, match=r"tiny\.gguf has no llama\.block_count; the file is incomplete"):
        raw_config(metadata(llama__block_count=None), weight_names=set())
