"""mlx-lm reads rope_scaling of Qwen3-MoE and never uses it (YaRN, as the model card asks for).

Run with a Python that has torch + transformers 5.24; MLX_PYTHON names one that has mlx-lm 0.32.2.
A tiny random checkpoint is written by transformers; both sides get the same token ids, teacher-forced.
"""
from mlx_against_transformers import compare

compare("qwen3_moe", {'head_dim': 32, 'num_experts': 4, 'num_experts_per_tok': 2, 'moe_intermediate_size': 48, 'rope_parameters': {'rope_type': 'yarn', 'rope_theta': 1000000.0, 'factor': 4.0, 'original_max_position_embeddings': 128}}, control={'rope_parameters': {'rope_type': 'default', 'rope_theta': 1000000.0}}, legacy={'num_experts': 4})
