"""How does a Llama checkpoint of Hugging Face become a GGUF file, with every weight as it is?"""

from pathlib import Path
from typing import Any

import gguf
import numpy as np

from oracle.engines.adapter import Refused
from oracle.engines.adapters.llama_files import Array, llama3_factors, read_config, read_weights

_LAYER_TENSORS = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}

_OTHER_TENSORS = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def write_llama_gguf(folder: Path, target: Path, *, dtype: str = "float32") -> dict[str, Any]:
    """Writes a checkpoint's weights and settings, and no tokenizer: the file takes token ids and nothing else.

    Args:
        folder: A Hugging Face checkpoint folder of the Llama family.
        target: The file that is written.
        dtype: Of matrices; vectors are float32 in any case.

    Returns:
        The checkpoint's configuration.

    Raises:
        Refused: The checkpoint is none that such a file can hold.
    """
    config = read_config(folder)
    activation = config.get("hidden_act", "silu")
    if activation != "silu":
        message = f"a GGUF file of a Llama has no place for hidden_act {activation!r}; it is silu there"
        raise Refused(message)
    weight_by_name = read_weights(folder)
    writer = gguf.GGUFWriter(target, "llama")
    _add_settings(writer, config, is_half=dtype == "float16")
    for name, weight in weight_by_name.items():
        writer.add_tensor(gguf_name(name), _converted(name, weight, config, dtype))
    factors = llama3_factors(config)
    if factors is not None:
        writer.add_tensor("rope_freqs.weight", factors)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return config


def gguf_name(name: str) -> str:
    """Gives the name that GGUF has for a weight of Hugging Face.

    Raises:
        Refused: It has none.
    """
    path, _, kind = name.rpartition(".")
    if path in _OTHER_TENSORS:
        return f"{_OTHER_TENSORS[path]}.{kind}"
    parts = path.split(".", 3)
    if parts[:2] == ["model", "layers"] and len(parts) == 4 and parts[3] in _LAYER_TENSORS:  # noqa: PLR2004 - as split
        return f"blk.{parts[2]}.{_LAYER_TENSORS[parts[3]]}.{kind}"
    message = f"weight {name} has no place in a GGUF file"
    raise Refused(message)


def interleaved(weight: Array, num_heads: int) -> Array:
    """Orders rows of a query or key projection as GGUF's rotation wants them: pairs side by side, not half apart."""
    half = weight.shape[0] // num_heads // 2
    return weight.reshape(num_heads, 2, half, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def _converted(name: str, weight: Array, config: dict[str, Any], dtype: str) -> Array:
    for path, key in (("self_attn.q_proj", "num_attention_heads"), ("self_attn.k_proj", "num_key_value_heads")):
        if path in name:
            weight = interleaved(weight, config[key])
    return np.ascontiguousarray(weight, dtype=np.float32 if weight.ndim == 1 else dtype)


def _add_settings(writer: "gguf.GGUFWriter", config: dict[str, Any], *, is_half: bool) -> None:
    rope = config["rope"]
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16 if is_half else gguf.LlamaFileType.ALL_F32)
    writer.add_vocab_size(config["vocab_size"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_rope_freq_base(rope["rope_theta"])
    if rope["rope_type"] == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    writer.add_tokenizer_model("none")
