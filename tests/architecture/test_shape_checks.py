"""The shapes in signatures are checked while tests run."""

import subprocess
import sys

import pytest
import torch
from jaxtyping import TypeCheckError

from refinfer.numerics import PlainNumerics

LOADED = "import sys, oracle.plugin; print(*sorted(sys.modules))"


def test_shape_checks_are_on():
    weight = torch.ones(3)
    hidden_states = torch.ones(5, 4)
    with pytest.raises(TypeCheckError):
        PlainNumerics().rms_norm(hidden_states, weight, 1e-5)


def test_plugin_loads_neither_torch_nor_the_engine():
    """Every pytest run on a machine with the harness pays for what the plugin imports."""
    result = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, encoding="utf-8", check=True)
    heavy = {"torch", "transformers", "numpy", "refinfer"}
    assert heavy & set(result.stdout.split()) == set()
