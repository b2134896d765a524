"""What is the model, and how is it to be run? Settings as frozen values."""

from refinfer.config.engine_config import EngineConfig
from refinfer.config.generation_config import load_eos_token_ids
from refinfer.config.model_config import ModelConfig
from refinfer.config.rope_config import RopeConfig

__all__ = ["EngineConfig", "ModelConfig", "RopeConfig", "load_eos_token_ids"]
