"""mlx-lm ignores Gemma 2's sliding_window.

Run with a Python that has torch + transformers 5.24; MLX_PYTHON names one that has mlx-lm 0.32.2.
A tiny random checkpoint is written by transformers; both sides get the same token ids, teacher-forced.
"""
from mlx_against_transformers import compare

compare("gemma2", {'head_dim': 32, 'sliding_window': 8, 'query_pre_attn_scalar': 32}, control={'sliding_window': 4096})
