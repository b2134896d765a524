"""mlx-lm ignores Mistral's sliding_window: prompts beyond it see too much.

Run with a Python that has torch + transformers 5.24; MLX_PYTHON names one that has mlx-lm 0.32.2.
A tiny random checkpoint is written by transformers; both sides get the same token ids, teacher-forced.
"""
from mlx_against_transformers import compare

compare("mistral", {'head_dim': 32, 'sliding_window': 8}, control={'sliding_window': None})
