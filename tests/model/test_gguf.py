"""A GGUF file becomes the checkpoint it was made from, or the one that Hugging Face would make of it."""

import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType
from safetensors.numpy import load_file
from tokenizers import pre_tokenizers
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from refinfer import load_model
from refinfer.cache import CausalAttentionView
from refinfer.config import load_eos_token_ids
from refinfer.errors import (
    CheckpointError,
    MissingWeightError,
    UnexpectedWeightError,
    UnsupportedModelError,
    WeightShapeError,
)
from refinfer.model.gguf import checkpoint_name, convert_gguf
from refinfer.tokenizer import Tokenizer

HIDDEN, INNER, HEADS, KV_HEADS, HEAD_DIM, LAYERS = 64, 96, 4, 2, 16, 2
TOKENS = ["<unk>", "<s>", "</s>", *sorted(pre_tokenizers.ByteLevel.alphabet()), "he", "ll", "hell", "Ġa"]
MERGES = ["h e", "l l", "he ll", "Ġ a"]
TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
ROOT = Path(__file__).parents[2]
KINDS = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1"]


def gguf_weights(seed=0):
    """Weights by their GGUF names, in the order of rows that checkpoints have."""
    random = np.random.default_rng(seed)
    shapes = {"token_embd": (len(TOKENS), HIDDEN), "output": (len(TOKENS), HIDDEN), "output_norm": (HIDDEN,)}
    for layer in range(LAYERS):
        shapes |= {f"blk.{layer}.{name}": (HIDDEN,) for name in ("attn_norm", "ffn_norm")}
        shapes |= {f"blk.{layer}.{name}": (HEADS * HEAD_DIM, HIDDEN) for name in ("attn_q", "attn_output")}
        shapes |= {f"blk.{layer}.{name}": (KV_HEADS * HEAD_DIM, HIDDEN) for name in ("attn_k", "attn_v")}
        shapes |= {f"blk.{layer}.{name}": (INNER, HIDDEN) for name in ("ffn_gate", "ffn_up")}
        shapes[f"blk.{layer}.ffn_down"] = (HIDDEN, INNER)
    return {f"{name}.weight": random.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}


def interleaved(weight, num_heads):
    """The rows of a query or key weight as GGUF files have them: rows i and i + head_dim/2 side by side."""
    heads = weight.reshape(num_heads, HEAD_DIM, -1)
    half = HEAD_DIM // 2
    order = [row for pair in range(half) for row in (pair, pair + half)]
    return heads[:, order].reshape(weight.shape)


def add_settings(writer):
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(500.0)
    writer.add_rope_dimension_count(HEAD_DIM)
    writer.add_vocab_size(len(TOKENS))


def add_tokenizer(writer):
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(TOKENS)
    writer.add_token_types([gguf.TokenType.CONTROL] * 3 + [gguf.TokenType.NORMAL] * (len(TOKENS) - 3))
    writer.add_token_merges(MERGES)
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template(TEMPLATE)


def write_gguf(path, weights, kind="F32", *, with_tokenizer=True):
    """Writes a GGUF file; norms stay in float32, as llama.cpp leaves them."""
    writer = gguf.GGUFWriter(path, "llama")
    add_settings(writer)
    if with_tokenizer:
        add_tokenizer(writer)
    for name, weight in weights.items():
        num_heads = HEADS if "attn_q" in name else KV_HEADS if "attn_k" in name else None
        rows = weight if num_heads is None else interleaved(weight, num_heads)
        own_kind = GGMLQuantizationType[kind if rows.ndim == 2 else "F32"]
        writer.add_tensor(name, gguf.quants.quantize(rows, own_kind), raw_dtype=own_kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def converted(path, folder):
    folder.mkdir()
    convert_gguf(path, folder)
    return folder


@pytest.fixture(scope="module")
def weights():
    return gguf_weights()


@pytest.fixture(scope="module")
def plain_gguf(weights, tmp_path_factory):
    return write_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf", weights)


@pytest.fixture(scope="module")
def checkpoint(plain_gguf, tmp_path_factory):
    return converted(plain_gguf, tmp_path_factory.mktemp("made") / "checkpoint")


def test_convert_gguf_gives_back_the_weights(weights, checkpoint):
    """Query and key rows included, which the file holds in another order."""
    stored = load_file(checkpoint / "model.safetensors")
    assert len(stored) == len(weights)
    for name, weight in weights.items():
        np.testing.assert_array_equal(stored[checkpoint_name(name)], weight)


@pytest.mark.parametrize("is_tied", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_convert_gguf_matches_reference_weights(weights, tmp_path, kind, is_tied):
    own = {name: weight for name, weight in weights.items() if not (is_tied and name == "output.weight")}
    path = write_gguf(tmp_path / "tiny.gguf", own, kind)
    stored = load_file(converted(path, tmp_path / "checkpoint") / "model.safetensors")
    # `from_pretrained` would take a GGUF file too, but asks for a further package; this is what it calls.
    empty = LlamaForCausalLM(LlamaConfig.from_pretrained(tmp_path / "checkpoint"))
    reference = load_gguf_checkpoint(path, return_tensors=True, model_to_load=empty)
    assert reference["config"]["tie_word_embeddings"] == is_tied
    assert stored.keys() == reference["tensors"].keys()
    for name, weight in reference["tensors"].items():
        np.testing.assert_array_equal(stored[name], weight.numpy())


def test_converted_checkpoint_loads_on_both_sides(checkpoint, tiny):
    token_ids = torch.arange(3, 40)
    model = load_model(checkpoint, batch_invariant=False)
    logits = model.forward(token_ids, torch.arange(len(token_ids)), CausalAttentionView([len(token_ids)]))
    assert torch.equal(logits, tiny.reference_logits(tiny.open_reference(checkpoint), token_ids))


def test_convert_gguf_matches_reference_tokenizer(plain_gguf, checkpoint):
    tokenizer = Tokenizer.from_folder(checkpoint)
    reference = AutoTokenizer.from_pretrained(plain_gguf.parent, gguf_file=plain_gguf.name)
    for text in ["hello a hell", "</s> and <s>", "日本 🙂", "", " \n\t"]:
        assert tokenizer.encode(text) == reference(text)["input_ids"]
    assert tokenizer.encode("hell") == [TOKENS.index("hell")]
    assert tokenizer.encode_chat([{"role": "user", "content": "hell"}]) == [TOKENS.index("hell")]


def test_convert_gguf_keeps_the_token_that_ends_an_answer(checkpoint):
    assert load_eos_token_ids(checkpoint) == (2,)


def test_convert_gguf_writes_no_tokenizer_where_the_file_has_none(weights, tmp_path):
    path = write_gguf(tmp_path / "tiny.gguf", weights, with_tokenizer=False)
    assert not Tokenizer.exists(converted(path, tmp_path / "checkpoint"))


def test_convert_gguf_reports_each_weight(plain_gguf, weights, tmp_path):
    reported = []
    convert_gguf(plain_gguf, tmp_path, lambda *numbers: reported.append(numbers))
    assert reported == [(number + 1, len(weights)) for number in range(len(weights))]


def test_convert_gguf_imports_no_model_of_the_reference(plain_gguf, tmp_path):
    """In a process of its own, since the tests import those models."""
    code = (
        "import sys; from pathlib import Path; from refinfer.model.gguf import convert_gguf\n"
        "convert_gguf(Path(sys.argv[1]), Path(sys.argv[2]))\n"
        "sys.exit(any('.modeling_' in name and '.models.' in name and '.auto.' not in name for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code, plain_gguf, tmp_path], cwd=ROOT, check=False).returncode == 0


@pytest.mark.parametrize(
    ("gguf_name", "name"),
    [
        ("token_embd.weight", "model.embed_tokens.weight"),
        ("output.weight", "lm_head.weight"),
        ("blk.11.attn_output.bias", "model.layers.11.self_attn.o_proj.bias"),
        ("blk.0.ffn_norm.weight", "model.layers.0.post_attention_layernorm.weight"),
    ],
)
def test_checkpoint_name_translates(gguf_name, name):
    assert checkpoint_name(gguf_name) == name


@pytest.mark.parametrize(
    "name", ["blk.0.attn_qkv.weight", "blk.x.attn_q.weight", "token_embd.scale", "other.weight", "x"]
)
def test_checkpoint_name_refuses_what_no_llama_has(name):
    with pytest.raises(UnexpectedWeightError, match="which a Llama model does not have"):
        checkpoint_name(name)


def test_convert_gguf_refuses_another_architecture_before_its_weights(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "other.gguf", "gpt2")
    writer.add_tensor("blk.0.attn_qkv.weight", np.zeros((2, 2), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(UnsupportedModelError, match=r"other\.gguf holds architecture 'gpt2'"):
        convert_gguf(tmp_path / "other.gguf", tmp_path)


def test_convert_gguf_refuses_a_weight_with_other_rows(weights, tmp_path):
    broken = weights | {"blk.1.attn_k.weight": np.zeros((HEADS * HEAD_DIM, HIDDEN), np.float32)}
    path = write_gguf(tmp_path / "tiny.gguf", broken)
    with pytest.raises(WeightShapeError, match=r"layers\.1\.self_attn\.k_proj\.weight has 64 rows, but 2 heads"):
        convert_gguf(path, tmp_path)


def test_convert_gguf_refuses_a_file_without_embedding(weights, tmp_path):
    path = write_gguf(tmp_path / "tiny.gguf", {k: v for k, v in weights.items() if k != "token_embd.weight"})
    with pytest.raises(MissingWeightError, match=r"has no token_embd\.weight"):
        convert_gguf(path, tmp_path)


def test_convert_gguf_refuses_a_kind_of_weight_it_cannot_multiply_out(weights, tmp_path, monkeypatch):
    def refuse(data, kind):
        raise NotImplementedError

    path = write_gguf(tmp_path / "tiny.gguf", weights)
    monkeypatch.setattr(gguf.quants, "dequantize", refuse)
    with pytest.raises(UnsupportedModelError, match="as F32, which the gguf package cannot read"):
        convert_gguf(path, tmp_path)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.9, 0.999])
def test_convert_gguf_refuses_a_truncated_file(plain_gguf, tmp_path, share):
    path = tmp_path / "short.gguf"
    contents = plain_gguf.read_bytes()
    path.write_bytes(contents[: int(share * len(contents))])
    with pytest.raises(CheckpointError, match=r"cannot be read as a GGUF file: .*; copy or download it again"):
        convert_gguf(path, tmp_path)


def test_convert_gguf_refuses_a_file_that_is_not_there(tmp_path):
    with pytest.raises(CheckpointError, match="cannot be read as a GGUF file"):
        convert_gguf(tmp_path / "none.gguf", tmp_path)


def test_convert_gguf_refuses_another_format(tmp_path):
    (tmp_path / "x.gguf").write_bytes(b"PK\x03\x04" * 100)
    with pytest.raises(CheckpointError, match="cannot be read as a GGUF file"):
        convert_gguf(tmp_path / "x.gguf", tmp_path)
