"""mlx-lm drops e_score_correction_bias of ERNIE 4.5 MoE, so that other experts are taken.

Run with a Python that has torch + transformers 5.24; MLX_PYTHON names one that has mlx-lm 0.32.2.
A tiny random checkpoint is written by transformers; both sides get the same token ids, teacher-forced.
"""
from mlx_against_transformers import compare

compare("ernie4_5_moe", {'head_dim': 32, 'moe_num_experts': 4, 'moe_k': 2, 'moe_intermediate_size': 48, 'moe_layer_start_index': 1}, control=None)
