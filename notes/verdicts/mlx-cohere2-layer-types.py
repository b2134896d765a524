"""mlx-lm ignores layer_types of Cohere 2.

Run with a Python that has torch + transformers 5.24; MLX_PYTHON names one that has mlx-lm 0.32.2.
A tiny random checkpoint is written by transformers; both sides get the same token ids, teacher-forced.
"""
from mlx_against_transformers import compare

compare("cohere2", {'num_hidden_layers': 4, 'sliding_window': 8, 'layer_types': ['sliding_attention', 'full_attention', 'sliding_attention', 'full_attention']}, control={'layer_types': ['sliding_attention', 'sliding_attention', 'sliding_attention', 'full_attention']})
