"""The gated MLP against its formula."""

import numpy as np
import torch


def test_mlp_matches_the_formula_in_float64(model_by_dtype):
    mlp = model_by_dtype["float64"].get_submodule("model.layers.1.mlp")
    hidden_states = torch.linspace(-2, 2, 60, dtype=torch.float64).reshape(5, 12)
    gate, up, down = (mlp.get_parameter(f"{name}_proj.weight").numpy() for name in ("gate", "up", "down"))
    x = hidden_states.numpy()
    expected = ((x @ gate.T) / (1 + np.exp(-(x @ gate.T))) * (x @ up.T)) @ down.T
    np.testing.assert_allclose(mlp(hidden_states).numpy(), expected, rtol=0, atol=1e-12)
