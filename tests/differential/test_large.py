"""A checkpoint with the exact shape of Llama-3.2-1B: what loading costs, and that it computes the right thing.

About 2.5 GB on disk and 8 GB of memory; run with `pytest -m large -s`.
"""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch

from oracle.checkpoints import llama_3_2_1b_spec, write_checkpoint
from oracle.reference import Reference
from oracle.tolerances import HALF_ERROR_FACTOR
from oracle.witness import Witness
from refinfer import load_model
from refinfer.cache import CausalAttentionView, ContinuousCache

pytestmark = [pytest.mark.large, pytest.mark.without_shape_checks]

MAX_PEAK_SHARE = 1.3
"""Peak resident size of a process that loads the checkpoint, as a multiple of the checkpoint's bytes."""

LOAD = """
import json, resource, sys
from refinfer import load_model
model = load_model(sys.argv[1], dtype="auto")
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps({"peak": peak, "dtype": str(model.dtype), "modules": sorted(sys.modules)}))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_checkpoint(llama_3_2_1b_spec(), tmp_path_factory.mktemp("llama-3.2-1b"))


@pytest.fixture(scope="module")
def token_ids():
    return np.random.default_rng(0).integers(0, 128256, size=24).tolist()


def test_llama_3_2_1b_shape_loads_within_its_own_size(folder):
    done = subprocess.run([sys.executable, "-c", LOAD, str(folder)], check=True, capture_output=True, text=True)
    loaded = json.loads(done.stdout)
    num_bytes = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    print(f"{num_bytes} bytes of weights, peak resident size {loaded['peak'] / num_bytes:.3f} times that")  # noqa: T201
    assert loaded["dtype"] == "torch.bfloat16"
    assert len(list(folder.glob("*.safetensors"))) > 1
    # The tokenizer's library brings tables of names; what computes a model is not among them.
    assert not {"transformers.modeling_utils", "transformers.models.llama.modeling_llama"} & set(loaded["modules"])
    assert loaded["peak"] <= MAX_PEAK_SHARE * num_bytes


def test_llama_3_2_1b_shape_is_as_close_to_the_witness_as_the_reference_is(folder, token_ids):
    model = load_model(folder, dtype="auto")
    whole = model.forward(torch.tensor(token_ids), torch.arange(len(token_ids)), CausalAttentionView([len(token_ids)]))
    cache = ContinuousCache(model.config, model.dtype)
    model.prefill([token_ids[:-1]], [cache])
    decoded = model.decode(token_ids[-1:], [cache])
    reference = Reference.open(folder, dtype="bfloat16").logits(token_ids)
    witness = Witness.open(folder).logits(token_ids)
    error = np.abs(whole.double().numpy() - witness)
    decoded_error = np.abs(decoded[0].double().numpy() - witness[-1])
    reference_error = np.abs(reference.double().numpy() - witness)
    print(  # noqa: T201
        f"largest error {error.max():.4f}, decoded {decoded_error.max():.4f}, reference {reference_error.max():.4f}; "
        f"mean {error.mean():.5f}, {decoded_error.mean():.5f}, {reference_error.mean():.5f}"
    )
    for figure in (np.max, np.mean):
        assert figure(error) <= HALF_ERROR_FACTOR * figure(reference_error)
        assert figure(decoded_error) <= HALF_ERROR_FACTOR * figure(reference_error[-1])
