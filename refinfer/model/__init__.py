"""What does the network compute? A Llama model, and the loader that fills it."""

from refinfer.model.checkpoint import load_model
from refinfer.model.llama import Llama

__all__ = ["Llama", "load_model"]
