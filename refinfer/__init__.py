"""A correctness-first reference implementation of LLM inference."""

from refinfer.config import EngineConfig
from refinfer.model import load_model
from refinfer.sampling import SamplingParams

__all__ = ["EngineConfig", "SamplingParams", "load_model"]
