"""mlx-lm ignores norm_topk_prob of Qwen2-MoE.

Run with a Python that has torch + transformers 5.24; MLX_PYTHON names one that has mlx-lm 0.32.2.
A tiny random checkpoint is written by transformers; both sides get the same token ids, teacher-forced.
"""
from mlx_against_transformers import compare

compare("qwen2_moe", {'num_experts': 4, 'num_experts_per_tok': 2, 'moe_intermediate_size': 48, 'shared_expert_intermediate_size': 48, 'norm_topk_prob': True}, control={'norm_topk_prob': False})
