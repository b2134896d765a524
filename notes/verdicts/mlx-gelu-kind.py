"""mlx-lm takes the other GELU: exact in Gemma where the config says tanh, tanh in GPT-NeoX (Pythia) where it says exact.

Run with a Python that has torch + transformers 5.24; MLX_PYTHON names one that has mlx-lm 0.32.2.
A tiny random checkpoint is written by transformers; both sides get the same token ids, teacher-forced.
"""
from mlx_against_transformers import compare

compare("gemma", {'head_dim': 32}, control=None)
