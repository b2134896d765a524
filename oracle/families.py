"""Tiny random checkpoints of many model families, for engines that run more than Llama.

Shapes come from each family's own configuration class, weights from the same generator as other generated checkpoints:
the same bytes on every machine, and large enough that greedy tokens depend on the whole context.
"""

import hashlib
import json
import math
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from oracle.checkpoint_weights import UniformStream
from oracle.checkpoints import default_cache_root
from oracle.errors import ScenarioError

FORMAT_VERSION = 2
"""Raised whenever a spec would give other bytes than before."""

_PLAIN_HEADS = {"head_dim": None, "num_key_value_heads": None}
_WINDOW = {"sliding_window": 12}
_ALTERNATING = {**_WINDOW, "layer_types": ["sliding_attention", "full_attention"]}

FAMILIES: Mapping[str, Mapping[str, Any]] = {
    "llama": {},
    "mistral": _WINDOW,
    "qwen2": {},
    "qwen3": {},
    "gemma": {},
    "gemma2": {**_ALTERNATING, "query_pre_attn_scalar": 32},
    "gemma3_text": {**_ALTERNATING, "query_pre_attn_scalar": 32},
    "phi": {"partial_rotary_factor": 0.5},
    "phi3": {"pad_token_id": None},
    "gpt2": _PLAIN_HEADS,
    "gpt_neox": {**_PLAIN_HEADS, "rotary_pct": 0.25},
    "opt": {**_PLAIN_HEADS, "ffn_dim": 112, "word_embed_proj_dim": 64},
    "bloom": _PLAIN_HEADS,
    "falcon": {**_PLAIN_HEADS, "new_decoder_architecture": True, "num_kv_heads": 2},
    "stablelm": {"partial_rotary_factor": 0.25, "head_dim": None},
    "starcoder2": _WINDOW,
    "olmo": {},
    "olmo2": {},
    "cohere": {"logit_scale": 0.5},
    "cohere2": {**_ALTERNATING, "logit_scale": 0.5},
    "granite": {"embedding_multiplier": 2.0, "attention_multiplier": 0.2, "residual_multiplier": 0.7},
    "smollm3": {"no_rope_layers": [1, 0], "pad_token_id": None},
    "glm": {"pad_token_id": None},
    "glm4": {"pad_token_id": None},
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen2_moe": {
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 48,
        "shared_expert_intermediate_size": 48,
    },
    "qwen3_moe": {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48},
    "gpt_oss": {
        **_ALTERNATING,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    },
    "mamba": {"state_size": 8},
    "recurrent_gemma": {"attention_window_size": 12, "lru_width": 64, "block_types": ["recurrent", "attention"]},
}
"""Model families by transformers' names, with what their tiny configurations set besides the common widths.

Sliding windows are so short that most requests go past them. None drops a width that the family does not take.
"""

_COMMON: Mapping[str, Any] = {
    "vocab_size": 131,
    "hidden_size": 64,
    "intermediate_size": 112,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "bos_token_id": None,
    "pad_token_id": None,
}

_SCALED_EMBEDDINGS = ("gemma", "gemma2", "gemma3_text", "recurrent_gemma")
"""Families that multiply embeddings by the root of their width."""

_PARALLEL = ("cohere", "cohere2", "falcon")
"""Families whose MLP does not see what attention adds, so that attention has to be louder."""

_FINAL_NORMS = ("model.norm", "ln_f", "final_layer_norm", "final_layernorm", "final_norm", "norm_f")
_EMBEDDING_STD = 0.125
_LOGITS_STD = 2.0
_PRODUCT_STD = 1.5
_LOUDER_STD = 3.0
_QUERY_STD = 2.5
_BIAS = 0.1
_NORM = 0.5
_RANGE_BY_NAME: Mapping[str, tuple[float, float]] = {
    "self_attn.sinks": (0.0, 0.5),
    "mlp.router.bias": (0.0, _BIAS),
    "dt_proj.bias": (-4.5, 2.0),
    "recurrent_param": (-4.25, 2.0),
}
"""Middle and half width of those vectors to which transformers gives random values of its own at first."""

_STD_OF_UNIFORM = 1.0 / math.sqrt(3.0)


@dataclass(frozen=True)
class FamilySpec:
    """A tiny random checkpoint of a family, in full; the same spec is the same weights on every machine.

    Attributes:
        family: One of `FAMILIES`.
        seed: Decides every random value.
        head_dim: Width of one head, where the family lets it be chosen.
        eos_token_ids: Ids that end a request.
        tie_word_embeddings: Whether the head uses the embedding's weight; None for what is usual in the family.

    Raises:
        ScenarioError: No such family is known.
    """

    family: str = "llama"
    seed: int = 0
    head_dim: int = 32
    eos_token_ids: tuple[int, ...] = (7, 19, 34, 58, 77, 101, 113, 126)
    tie_word_embeddings: bool | None = None

    def __post_init__(self) -> None:
        if self.family not in FAMILIES:
            message = f"family {self.family!r} is unknown; known are {', '.join(FAMILIES)}"
            raise ScenarioError(message, family=self.family)

    @property
    def digest(self) -> str:
        """Identifies the bytes that this spec gives."""
        content = {"format_version": FORMAT_VERSION, **asdict(self), "options": FAMILIES[self.family]}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def config(self) -> Any:
        """Makes the family's configuration."""
        values = {**_COMMON, "head_dim": self.head_dim, "eos_token_id": list(self.eos_token_ids) or None}
        if self.tie_word_embeddings is not None:
            values["tie_word_embeddings"] = self.tie_word_embeddings
        values |= FAMILIES[self.family]
        return AutoConfig.for_model(
            self.family, **{key: value for key, value in values.items() if value is not None or key.endswith("_id")}
        )


def write_family_checkpoint(spec: FamilySpec, folder: Path) -> Path:
    """Writes configuration and weights as a Hugging Face checkpoint folder; gives the folder."""
    model = make_family_model(spec)
    model.generation_config.eos_token_id = list(spec.eos_token_ids) or None
    model.generation_config.pad_token_id = None
    model.save_pretrained(folder)
    return folder


def make_family_model(spec: FamilySpec) -> Any:
    """Makes transformers' model of a spec; its weights depend on nothing else."""
    model = AutoModelForCausalLM.from_config(spec.config(), dtype=torch.float32)  # type: ignore[no-untyped-call]
    is_tied = model.get_output_embeddings().weight is model.get_input_embeddings().weight
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            _fill(spec, name, parameter, is_tied=is_tied)
    return model.eval()


def cached_family_checkpoint(spec: FamilySpec, root: Path | None = None) -> Path:
    """Gives the folder of a checkpoint, which is written the first time; processes may ask for it at once."""
    root = default_cache_root() if root is None else root
    folder = root / spec.digest
    if folder.exists():
        return folder
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="unfinished-", dir=root, ignore_cleanup_errors=True) as name:
        unfinished = write_family_checkpoint(spec, Path(name) / spec.digest)
        try:
            unfinished.rename(folder)
        except OSError:  # another process was first
            if not folder.exists():
                raise
    return folder


def _fill(spec: FamilySpec, name: str, parameter: torch.Tensor, *, is_tied: bool) -> None:
    """Gives a parameter random values on the scale that its place in the network asks for."""
    stream = UniformStream(spec.seed, f"{spec.family} {name}")
    noise = torch.from_numpy(stream.uniform(parameter.numel())).view(parameter.shape)  # of one parameter
    width = _COMMON["hidden_size"]
    embedding_std = _EMBEDDING_STD / (math.sqrt(width) if spec.family in _SCALED_EMBEDDINGS else 1.0)
    if parameter.dim() == 1:
        for end, (middle, half_width) in _RANGE_BY_NAME.items():
            if name.endswith(end):
                parameter.copy_(middle + noise * half_width)
                return
        parameter.add_(noise * (_BIAS if name.endswith("bias") else _NORM))
        module = name.rpartition(".")[0]
        if module.endswith("embeddings_layernorm"):
            parameter.mul_(_EMBEDDING_STD)
        if is_tied and name.endswith("weight") and module.endswith(_FINAL_NORMS):
            # A tied head has the small values of the embedding, which the final norm makes up for.
            parameter.add_(_LOGITS_STD / (embedding_std * math.sqrt(width)) - 1.0)
        return
    if any(part in name for part in ("embed", "wte", "wpe")) and "embed_out" not in name:
        std = embedding_std
    elif "lm_head" in name or "embed_out" in name:
        std = _LOGITS_STD / math.sqrt(width)
    else:
        fan_in = parameter.shape[0] if spec.family == "gpt2" else parameter.shape[-1]
        is_louder = spec.family in _PARALLEL and any(part in name for part in ("v_proj", "o_proj", "self_attention"))
        product_std = _LOUDER_STD if is_louder else _PRODUCT_STD
        std = (_QUERY_STD if "q_proj" in name else product_std) / math.sqrt(fan_in)
    parameter.copy_(noise * (std / _STD_OF_UNIFORM))
