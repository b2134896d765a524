"""mlx-lm ignores layer_types of Gemma 3, and takes every sixth layer for a full one.

Run with a Python that has torch + transformers 5.24; MLX_PYTHON names one that has mlx-lm 0.32.2.
A tiny random checkpoint is written by transformers; both sides get the same token ids, teacher-forced.
"""
from mlx_against_transformers import compare

compare("gemma3_text", {'head_dim': 32, 'num_hidden_layers': 6, 'sliding_window': 8, 'query_pre_attn_scalar': 32, 'layer_types': ['sliding_attention', 'full_attention', 'sliding_attention', 'full_attention', 'sliding_attention', 'full_attention']}, control={'layer_types': ['sliding_attention', 'sliding_attention', 'sliding_attention', 'sliding_attention', 'sliding_attention', 'full_attention']}, legacy={'rope_theta': 1000000.0, 'rope_local_base_freq': 10000.0})
