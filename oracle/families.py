"""Tiny random checkpoints of many model families, for engines that run more than Llama.

Shapes come from each family's own configuration class, weights from the same generator as other generated checkpoints:
the same bytes on every machine, and large enough that greedy tokens depend on the whole context.
"""

import hashlib
import json
import math
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from oracle.checkpoint_weights import UniformStream
from oracle.checkpoints import default_cache_root
from oracle.errors import ScenarioError
from oracle.family_shapes import COMMON, FAMILIES, family_of, options_of, shapes_of

FORMAT_VERSION = 3
"""Raised whenever a spec would give other bytes than before."""

_SCALED_EMBEDDINGS = ("gemma", "gemma2", "gemma3_text", "recurrent_gemma")
"""Families that multiply embeddings by the root of their width."""

_LOUDER = (
    *(shape for family in ("cohere", "cohere2", "falcon") for shape in shapes_of(family)),
    "bloom:residual-after-norm",
    "gpt2:scaled-by-layer",
    "gpt_neox:wide",
    "opt:narrow-embedding",
    "phi:normed-queries",
    "stablelm:parallel",
)
"""Shapes in which attention has to be louder for its context to show, such as those whose MLP does not see it."""

_ATTENTION = ("v_proj", "o_proj", "out_proj", "self_attention", ".attention.", ".attn.")

_WIDTHS_OF_HEADS = ("head_dim", "num_key_value_heads")
"""Left to the configuration class where a shape sets None."""

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
        family: The name of a shape: one of `FAMILIES`, or a variant of one, such as `llama:tied`.
        seed: Decides every random value.
        head_dim: Width of one head, where the family lets it be chosen.
        hidden_size: Width of the model, of which four heads share alike where the family lets no head be chosen.
        eos_token_ids: Ids that end a request.
        tie_word_embeddings: Whether the head uses the embedding's weight; None for what is usual in the family.

    Raises:
        ScenarioError: No such family is known.
    """

    family: str = "llama"
    seed: int = 0
    head_dim: int = 32
    hidden_size: int = COMMON["hidden_size"]
    eos_token_ids: tuple[int, ...] = (7, 19, 34, 58, 77, 101, 113, 126)
    tie_word_embeddings: bool | None = None

    def __post_init__(self) -> None:
        if options_of(self.family) is None:
            family = family_of(self.family)
            known = shapes_of(family) if family in FAMILIES else FAMILIES
            message = f"family {self.family!r} is unknown; known are {', '.join(known)}"
            raise ScenarioError(message, family=self.family)

    @property
    def digest(self) -> str:
        """Identifies the bytes that this spec gives."""
        content = {"format_version": FORMAT_VERSION, **asdict(self), "options": options_of(self.family)}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    @classmethod
    def with_head(cls, family: str, head_dim: int) -> "FamilySpec":
        """Gives the spec of a shape in which a head has that width, in whichever way its family says so."""
        spec = cls(family, head_dim=head_dim)
        config = spec.config()
        if getattr(config, "head_dim", None) == head_dim:
            return spec
        return replace(spec, hidden_size=config.num_attention_heads * head_dim)

    @classmethod
    def for_engine(cls, family: str, head_dims: tuple[int, ...]) -> "FamilySpec":
        """Gives the spec of a shape for an engine that takes heads of some widths, none standing for any."""
        return cls.with_head(family, head_dims[0]) if head_dims else cls(family)

    def config(self) -> Any:
        """Makes the family's configuration."""
        values = {
            **COMMON,
            "hidden_size": self.hidden_size,
            "head_dim": self.head_dim,
            "eos_token_id": list(self.eos_token_ids) or None,
        }
        if self.tie_word_embeddings is not None:
            values["tie_word_embeddings"] = self.tie_word_embeddings
        values |= options_of(self.family) or {}
        return AutoConfig.for_model(
            family_of(self.family),
            **{key: value for key, value in values.items() if value is not None or key not in _WIDTHS_OF_HEADS},
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
    family = family_of(spec.family)
    stream = UniformStream(spec.seed, f"{family} {name}")
    noise = torch.from_numpy(stream.uniform(parameter.numel())).view(parameter.shape)  # of one parameter
    width = spec.hidden_size
    embedding_std = _EMBEDDING_STD / (math.sqrt(width) if family in _SCALED_EMBEDDINGS else 1.0)
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
        fan_in = parameter.shape[0] if family == "gpt2" else parameter.shape[-1]
        is_louder = spec.family in _LOUDER and any(part in name for part in _ATTENTION)
        product_std = _LOUDER_STD if is_louder else _PRODUCT_STD
        std = (_QUERY_STD if "q_proj" in name else product_std) / math.sqrt(fan_in)
    parameter.copy_(noise * (std / _STD_OF_UNIFORM))
