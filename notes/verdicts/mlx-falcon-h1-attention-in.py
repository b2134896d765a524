"""mlx-lm does not apply Falcon-H1's attention_in_multiplier to values.

Run with a Python that has torch + transformers 5.24; MLX_PYTHON names one that has mlx-lm 0.32.2.
A tiny random checkpoint is written by transformers; both sides get the same token ids, teacher-forced.
"""
from mlx_against_transformers import compare

compare("falcon_h1", {'head_dim': 32, 'mamba_d_ssm': 64, 'mamba_n_heads': 4, 'mamba_d_head': 16, 'mamba_n_groups': 1, 'mamba_d_state': 8, 'attention_in_multiplier': 0.5}, control={'attention_in_multiplier': 1.0})
