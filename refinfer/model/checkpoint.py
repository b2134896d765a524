"""Loads a checkpoint folder into a `Llama`: every parameter assigned exactly once, or an error by name."""

import re
import warnings
from pathlib import Path

import torch
from torch import nn

from refinfer.config import ModelConfig
from refinfer.config.engine_config import check_flag
from refinfer.errors import CheckpointError, ConfigError, MissingWeightError, UnexpectedWeightError, WeightShapeError
from refinfer.model.linear import Linear
from refinfer.model.llama import Llama
from refinfer.model.safetensors_file import StoredWeight
from refinfer.model.weight_files import find_weights
from refinfer.numerics import InvariantNumerics, PlainNumerics, check_operations, dtype_by_name

_EMBEDDING = "model.embed_tokens.weight"
_HEAD = "lm_head.weight"

_DERIVED = re.compile(
    r"(model\.)?(layers\.\d+\.(self_attn\.)?)?rotary_emb\.\w+"
    r"|(model\.)?rope\.freqs"
)
"""Rotary frequencies, tables and lengths, which older files store; a rotary embedding learns nothing, so that all of
them follow from config.json, whatever the file holds."""


def load_model(folder: str | Path, dtype: str = "float32", *, batch_invariant: bool = True) -> Llama:
    """Loads a Llama-architecture checkpoint.

    Args:
        folder: Holds config.json, and the weights as model.safetensors or pytorch_model.bin, or as shards
            of either kind with their index.
        dtype: Dtype to run in: "float32", "float64", "bfloat16", "float16", or "auto" for the checkpoint's.
        batch_invariant: Whether a row's bits must not depend on what runs beside it.

    Raises:
        ConfigError: A setting or a value in config.json cannot work or is not implemented.
        CheckpointError: The folder cannot be loaded as it stands.
        NumericsError: On this machine a row's bits would depend on its batch.
    """
    check_flag("batch_invariant", batch_invariant)
    folder = Path(folder)
    if not folder.is_dir():
        message = f"{folder} is not a folder; give the folder that holds config.json and the weights"
        raise CheckpointError(message, folder=folder)
    config = ModelConfig.from_folder(folder)
    weight_by_name = find_weights(folder)
    _refuse_sizes_beyond_the_files(config, weight_by_name)
    torch_dtype = _resolve_dtype(dtype, config, weight_by_name)
    model = Llama(config, dtype=torch_dtype, numerics=InvariantNumerics() if batch_invariant else PlainNumerics())
    model.eval()
    _tie_before_reading(model, weight_by_name)
    _check_names_and_shapes(model, weight_by_name)
    is_one_weight = model.lm_head.weight is model.embedding_weight
    for name, _ in list(model.named_parameters()):
        module_path, _, key = name.rpartition(".")
        weight = weight_by_name[name].read().to(torch_dtype)
        setattr(model.get_submodule(module_path), key, nn.Parameter(weight, requires_grad=False))
    if is_one_weight:
        model.lm_head.weight = model.embedding_weight
    _tie_after_reading(model)
    for module in model.modules():
        if isinstance(module, Linear):
            module.prepare()
    if batch_invariant:
        check_operations(model.numerics, config, torch_dtype)
    return model


def _refuse_sizes_beyond_the_files(config: ModelConfig, weight_by_name: dict[str, StoredWeight]) -> None:
    """Compares config.json with the files' headers before anything of its sizes is built; a file has its own limits."""
    if not weight_by_name:
        message = "the weights that config.json asks for are in no file; copy or download the checkpoint again"
        raise MissingWeightError(message)
    num_bytes = sum(weight.num_bytes for weight in weight_by_name.values())
    num_heads_values = config.num_heads * config.head_dim * config.hidden_size
    num_values_by_setting = {
        f"vocab_size {config.vocab_size}": config.vocab_size * config.hidden_size,
        f"intermediate_size {config.intermediate_size}": config.intermediate_size * config.hidden_size,
        f"num_attention_heads {config.num_heads} of head_dim {config.head_dim}": num_heads_values,
    }
    for setting, num_values in num_values_by_setting.items():
        if num_values > num_bytes:
            message = (
                f"config.json has {setting} over hidden_size {config.hidden_size}, a matrix of {num_values} values, "
                f"but all weights have {num_bytes} bytes together; one of the two belongs to another model"
            )
            raise MissingWeightError(message, num_values=num_values, num_bytes=num_bytes)
    if config.num_layers > len(weight_by_name):
        message = (
            f"config.json has num_hidden_layers {config.num_layers}, but the files hold {len(weight_by_name)} weights "
            "in all; one of the two belongs to another model"
        )
        raise MissingWeightError(message, num_layers=config.num_layers, num_weights=len(weight_by_name))


def resolve_dtype(dtype: str, config: ModelConfig, folder: Path) -> torch.dtype:
    """Return the dtype that `load_model` runs in; of the weights at most the headers are read.

    Raises:
        ConfigError: config.json names a dtype that is not implemented.
        CheckpointError: Only the weights tell the dtype, and they cannot be read.
    """
    needs_weights = dtype == "auto" and config.dtype_name is None
    return _resolve_dtype(dtype, config, find_weights(folder) if needs_weights else {})


def _resolve_dtype(dtype: str, config: ModelConfig, weight_by_name: dict[str, StoredWeight]) -> torch.dtype:
    if dtype != "auto":
        return dtype_by_name(dtype)
    if config.dtype_name is not None:
        try:
            return dtype_by_name(config.dtype_name)
        except ConfigError as error:
            message = f"config.json: {error}"
            raise ConfigError(message, dtype=config.dtype_name) from error
    first = next(iter(weight_by_name.values()), None)
    # A file without weights is refused by name afterwards, whatever the dtype.
    return torch.float32 if first is None else first.dtype


def _tie_before_reading(model: Llama, weight_by_name: dict[str, StoredWeight]) -> None:
    """Shares one parameter between embedding and head where a tied checkpoint stores only one of them."""
    if not model.config.tie_word_embeddings:
        return
    if _HEAD not in weight_by_name:
        model.lm_head.weight = model.embedding_weight
    elif _EMBEDDING not in weight_by_name:
        weight_by_name[_EMBEDDING] = weight_by_name.pop(_HEAD)
        model.lm_head.weight = model.embedding_weight


def _tie_after_reading(model: Llama) -> None:
    """Decides about a tied checkpoint that stores both: equal values are shared, others stay apart."""
    embedding, head = model.embedding_weight, model.lm_head.weight
    if not model.config.tie_word_embeddings or head is embedding:
        return
    if torch.equal(embedding, head):
        model.lm_head.weight = embedding
        return
    message = (
        f"config.json says tie_word_embeddings, but {_HEAD} and {_EMBEDDING} hold different values; "
        "the head keeps its own weight, and tie_word_embeddings: false in config.json would say so"
    )
    warnings.warn(message, stacklevel=3)


def _check_names_and_shapes(model: Llama, weight_by_name: dict[str, StoredWeight]) -> None:
    shape_by_name = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    missing = sorted(shape_by_name.keys() - weight_by_name.keys())
    if missing:
        message = (
            f"{len(missing)} weights that config.json asks for are in no file, the first is {missing[0]}; "
            "copy or download the checkpoint again"
        )
        raise MissingWeightError(message, names=missing)
    unexpected = sorted(name for name in weight_by_name.keys() - shape_by_name.keys() if not _DERIVED.fullmatch(name))
    if unexpected:
        first = weight_by_name[unexpected[0]]
        message = (
            f"{first.path.name} holds {first.name}, for which config.json has no place "
            f"({len(unexpected)} such weights in all); a model that needs it is not implemented"
        )
        raise UnexpectedWeightError(message, names=unexpected)
    for name, shape in shape_by_name.items():
        stored = weight_by_name[name]
        if stored.shape != shape:
            message = (
                f"{stored.path.name}: weight {name} has shape {stored.shape}, but config.json gives it {shape}; "
                "one of the two files belongs to another model"
            )
            raise WeightShapeError(message, name=name, stored=stored.shape, expected=shape)
