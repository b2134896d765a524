"""mlx-lm rotates all of a GLM-4 (model_type glm) head; its config says half of it.

Run with a Python that has torch + transformers 5.24; MLX_PYTHON names one that has mlx-lm 0.32.2.
A tiny random checkpoint is written by transformers; both sides get the same token ids, teacher-forced.
"""
from mlx_against_transformers import compare

compare("glm", {'head_dim': 32}, control={'partial_rotary_factor': 1.0}, legacy={'partial_rotary_factor': 0.5})
