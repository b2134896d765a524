"""mlx-lm ignores Llama 3.1's RoPE scaling where it stands in `rope_parameters`, as transformers 5 writes it.

Run with a Python that has torch + transformers 5.24; MLX_PYTHON names one that has mlx-lm 0.32.2.
A tiny random checkpoint is written by transformers; both sides get the same token ids, teacher-forced.
"""
from mlx_against_transformers import compare

compare("llama", {'head_dim': 32, 'rope_parameters': {'rope_type': 'llama3', 'rope_theta': 500000.0, 'factor': 8.0, 'low_freq_factor': 1.0, 'high_freq_factor': 4.0, 'original_max_position_embeddings': 64}}, control={'rope_parameters': {'rope_type': 'default', 'rope_theta': 10000.0}}, legacy=None)
