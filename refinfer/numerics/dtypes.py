"""Dtypes by the names that users write, and the dtype that sensitive sums are computed in."""

import torch

from refinfer.errors import ConfigError

_DTYPE_BY_NAME = {
    "float32": torch.float32,
    "float64": torch.float64,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


def dtype_by_name(name: str) -> torch.dtype:
    """Gives the torch dtype of a name such as "float32".

    Raises:
        ConfigError: The name is not one of the four that models run in.
    """
    if name not in _DTYPE_BY_NAME:
        message = f"dtype {name!r} is unknown; choose one of {', '.join(_DTYPE_BY_NAME)}"
        raise ConfigError(message, dtype=name)
    return _DTYPE_BY_NAME[name]


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """Gives the dtype that norms and rotary angles are computed in for a model of this dtype.

    Half precision is widened to float32: squares overflow float16 above 255, and bfloat16 has no
    integers above 256 apart from even ones. Wider dtypes stay as they are.
    """
    return torch.promote_types(dtype, torch.float32)
