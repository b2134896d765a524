"""A correctness-first reference implementation of LLM inference."""

from refinfer.config import EngineConfig
from refinfer.engine import LLM, CompletionOutput, LLMEngine, Logprob, RequestOutput
from refinfer.model import load_model
from refinfer.sampling import SamplingParams

__all__ = [
    "LLM",
    "CompletionOutput",
    "EngineConfig",
    "LLMEngine",
    "Logprob",
    "RequestOutput",
    "SamplingParams",
    "load_model",
]
