"""How positions become rotary angles: the RoPE settings of a checkpoint, older and newer key names."""

import sys
import warnings
from dataclasses import dataclass
from typing import Any

from refinfer.errors import ConfigError, UnsupportedModelError

DEFAULT_ROPE_THETA = 10000.0
"""The base when a configuration names none, as in the RoPE paper (Su et al. 2021, section 3.2.2)."""

DEFAULT_MAX_POSITION_EMBEDDINGS = 2048
"""The longest request when a configuration names none, as with the reference."""

_NUMBERS_BY_ROPE_TYPE = {
    "default": (),
    "linear": ("factor",),
    "llama3": (
        "factor",
        "low_freq_factor",
        "high_freq_factor",
        "original_max_position_embeddings",
    ),
}

SUPPORTED_ROPE_TYPES = tuple(_NUMBERS_BY_ROPE_TYPE)

_SHARED_SETTINGS = {"rope_theta", "partial_rotary_factor", "original_max_position_embeddings"}
"""Settings that may stand beside every type; the last changes nothing where there are no bands."""

_NEUTRAL_VALUES_BY_KEY: dict[str, tuple[Any, ...]] = {
    "factor": (1.0,),
    "attention_factor": (1.0,),
    "finetuned": (True, False),
}
"""Settings of some types, with the values at which they say nothing to the others."""


@dataclass(frozen=True)
class RopeConfig:
    """Rotary position embedding settings.

    Attributes:
        rope_type: One of `SUPPORTED_ROPE_TYPES`.
        rope_theta: Base of the geometric sequence of wavelengths.
        factor: How much longer scaled wavelengths are (`linear`, `llama3`).
        low_freq_factor: Wavelengths above the original length divided by this are scaled in full (`llama3`).
        high_freq_factor: Wavelengths below the original length divided by this stay as they are (`llama3`).
        original_max_position_embeddings: The length the model was first trained at (`llama3`).
    """

    rope_type: str = "default"
    rope_theta: float = DEFAULT_ROPE_THETA
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 1.0
    original_max_position_embeddings: float = 0.0

    @classmethod
    def from_raw_config(cls, raw_config: dict[str, Any]) -> "RopeConfig":
        """Reads the settings from the contents of config.json.

        The newer files hold everything in `rope_parameters`; the older ones hold `rope_theta` beside
        `rope_scaling`, whose type is named `rope_type` or `type`.
        A file may hold both as long as they agree.
        Where the type is named, what its formula does not read is passed over with a warning: the reference
        computes the same, and files keep such settings of a type that they had before.
        Where none is named, such a setting is refused, since its type may have been forgotten.

        Raises:
            UnsupportedModelError: The RoPE type is not implemented.
            ConfigError: Two keys contradict each other, a number is absent or out of range, or a setting
                has no type.
        """
        settings = _merged_settings(raw_config)
        is_named = "rope_type" in settings
        rope_type = settings.pop("rope_type", "default")
        _refuse_other_ropes(rope_type, settings)
        _pass_over_unused(rope_type, settings, is_named=is_named)
        if rope_type == "llama3":
            # Where the original length is not named, it is the only length there is.
            settings.setdefault(
                "original_max_position_embeddings",
                raw_config.get("max_position_embeddings") or DEFAULT_MAX_POSITION_EMBEDDINGS,
            )
        numbers = {
            name: _positive_number(settings, name, rope_type)
            for name in ("rope_theta", *_NUMBERS_BY_ROPE_TYPE[rope_type])
        }
        if rope_type == "llama3" and not numbers["low_freq_factor"] < numbers["high_freq_factor"]:
            message = (
                f"low_freq_factor {numbers['low_freq_factor']} in config.json must lie below "
                f"high_freq_factor {numbers['high_freq_factor']}"
            )
            raise ConfigError(message, **numbers)
        return cls(rope_type=rope_type, **numbers)


def _refuse_other_ropes(rope_type: object, settings: dict[str, Any]) -> None:
    if rope_type not in SUPPORTED_ROPE_TYPES:
        message = (
            f"RoPE type {rope_type!r} in config.json is not implemented; "
            f"the implemented ones are {', '.join(SUPPORTED_ROPE_TYPES)}"
        )
        raise UnsupportedModelError(message, rope_type=rope_type)
    partial_rotary_factor = settings.get("partial_rotary_factor", 1.0)
    if partial_rotary_factor != 1.0:
        message = (
            f"partial_rotary_factor {partial_rotary_factor} in config.json is not implemented; "
            "only 1.0, where every dimension of a head is rotated"
        )
        raise UnsupportedModelError(message, partial_rotary_factor=partial_rotary_factor)


def _pass_over_unused(rope_type: str, settings: dict[str, Any], *, is_named: bool) -> None:
    unused = sorted(
        name
        for name in settings.keys() - _SHARED_SETTINGS - set(_NUMBERS_BY_ROPE_TYPE[rope_type])
        if settings[name] not in _NEUTRAL_VALUES_BY_KEY.get(name, ())
    )
    if not unused:
        return
    if not is_named:
        # A factor whose type was forgotten would leave every angle wrong and nobody would hear of it.
        message = (
            f"RoPE type {rope_type!r} in config.json has no use for {', '.join(unused)}; "
            "name the type that these settings belong to, or take them out"
        )
        raise ConfigError(message, rope_type=rope_type, names=unused)
    message = (
        f"config.json names RoPE type {rope_type!r}, which has no use for {', '.join(unused)}; "
        "they are passed over, as by the reference"
    )
    warnings.warn(message, stacklevel=2)


def _merged_settings(raw_config: dict[str, Any]) -> dict[str, Any]:
    """Lays the older and the newer keys on top of each other; a contradiction is an error."""
    places = [
        ("rope_parameters", _table(raw_config, "rope_parameters")),
        ("rope_scaling", _table(raw_config, "rope_scaling")),
        (
            "the top level",
            {
                key: raw_config[key]
                for key in (
                    "rope_theta",
                    "partial_rotary_factor",
                    "original_max_position_embeddings",
                )
                if raw_config.get(key) is not None
            },
        ),
    ]
    merged: dict[str, Any] = {}
    place_by_key: dict[str, str] = {}
    for place, table in places:
        for name, value in table.items():
            key = "rope_type" if name == "type" else name
            if key in merged and merged[key] != value:
                message = (
                    f"{key} is {merged[key]!r} in {place_by_key[key]} and {value!r} in {place} "
                    f"of config.json; keep the one the model was trained with"
                )
                raise ConfigError(message, key=key, values=(merged[key], value))
            merged[key] = value
            place_by_key[key] = f"{place} ({name})"
    merged.setdefault("rope_theta", DEFAULT_ROPE_THETA)
    return merged


def _table(raw_config: dict[str, Any], key: str) -> dict[str, Any]:
    table = raw_config.get(key)
    if table is None:
        return {}
    if not isinstance(table, dict) or any(isinstance(value, dict) for value in table.values()):
        message = f"{key} in config.json is {table!r}; it must be one flat object of RoPE settings"
        raise ConfigError(message, key=key, value=table)
    return {name: value for name, value in table.items() if value is not None}


def _positive_number(settings: dict[str, Any], name: str, rope_type: str) -> float:
    value = settings.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= sys.float_info.max:
        message = f"{name} in config.json is {value!r}; RoPE type {rope_type!r} needs a positive number there"
        raise ConfigError(message, name=name, value=value)
    return float(value)
