"""A correctness-first reference implementation of LLM inference."""

from refinfer.model import load_model

__all__ = ["load_model"]
