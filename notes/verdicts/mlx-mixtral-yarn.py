"""mlx-lm reads rope_scaling of Mixtral and never uses it.

Run with a Python that has torch + transformers 5.24; MLX_PYTHON names one that has mlx-lm 0.32.2.
A tiny random checkpoint is written by transformers; both sides get the same token ids, teacher-forced.
"""
from mlx_against_transformers import compare

compare("mixtral", {'num_local_experts': 4, 'num_experts_per_tok': 2, 'rope_parameters': {'rope_type': 'linear', 'rope_theta': 10000.0, 'factor': 4.0}}, control={'rope_parameters': {'rope_type': 'default', 'rope_theta': 10000.0}})
