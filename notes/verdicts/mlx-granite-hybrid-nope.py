"""mlx-lm rotates in GraniteMoeHybrid where position_embedding_type is null, which means none.

Run with a Python that has torch + transformers 5.24; MLX_PYTHON names one that has mlx-lm 0.32.2.
A tiny random checkpoint is written by transformers; both sides get the same token ids, teacher-forced.
"""
from mlx_against_transformers import compare

compare("granitemoehybrid", {'layer_types': ['mamba', 'attention'], 'num_local_experts': 4, 'num_experts_per_tok': 2, 'shared_intermediate_size': 48, 'mamba_n_heads': 4, 'mamba_d_head': 32, 'mamba_d_state': 8, 'mamba_n_groups': 1, 'position_embedding_type': None}, control={'position_embedding_type': 'rope'}, legacy={'layer_types': ['mamba', 'attention']})
