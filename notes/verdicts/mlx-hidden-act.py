"""mlx-lm ignores hidden_act (here Llama with gelu; so of every family but a few).

Run with a Python that has torch + transformers 5.24; MLX_PYTHON names one that has mlx-lm 0.32.2.
A tiny random checkpoint is written by transformers; both sides get the same token ids, teacher-forced.
"""
from mlx_against_transformers import compare

compare("llama", {'head_dim': 32, 'hidden_act': 'gelu'}, control={'hidden_act': 'silu'})
