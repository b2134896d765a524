"""mlx-lm lets the weights of Jamba's chosen experts sum to one; the model does not.

Run with a Python that has torch + transformers 5.24; MLX_PYTHON names one that has mlx-lm 0.32.2.
A tiny random checkpoint is written by transformers; both sides get the same token ids, teacher-forced.
"""
from mlx_against_transformers import compare

compare("jamba", {'attn_layer_period': 2, 'attn_layer_offset': 1, 'expert_layer_period': 2, 'expert_layer_offset': 1, 'num_experts': 4, 'num_experts_per_tok': 2, 'mamba_d_state': 8, 'mamba_dt_rank': 8}, control={'num_experts': 1})
