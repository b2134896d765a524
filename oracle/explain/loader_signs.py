"""Does the model hold what the checkpoint's files say? Weights and settings, read once more without the loader."""

import math
from collections.abc import Iterator

import numpy as np
import torch

from oracle.case import Case
from oracle.explain import sources
from oracle.explain.suspicion import Moment, Suspect, Suspicion
from oracle.witness import Witness, inverse_frequencies
from oracle.witness_checkpoint import SETTINGS_BY_ROPE_TYPE, WitnessConfig, to_float64
from refinfer.engine import LoadedModel
from refinfer.model import Llama

_FREQUENCIES = ("refinfer/numerics/rotary.py", "refinfer/model/rope.py", *sources.ROPE_CONFIG)
_SMALLEST_DIFFERENCE = 1e-6
"""Of frequencies, as a share: they are at least float32."""


def loader_signs(case: Case, loaded: LoadedModel) -> list[Suspicion]:
    """Holds a loaded model to its files; gives what differs, settings first.

    Raises:
        ReferenceUnavailable: The witness cannot read the files.
    """
    witness = Witness.open(case.folder)
    signs = [*_settings(loaded.model, witness.config), *_weights(loaded.model, witness)]
    if set(loaded.eos_token_ids) != set(case.eos_token_ids):
        what = f"the model ends at {sorted(loaded.eos_token_ids)}, and its files name {sorted(case.eos_token_ids)}"
        files = ("refinfer/config/generation_config.py", "refinfer/engine/loading.py")
        signs.append(_sign(Suspect("loader", "end-of-sequence ids", files), what))
    return signs


def _settings(model: Llama, config: WitnessConfig) -> Iterator[Suspicion]:
    own = model.config
    pairs = {
        "num_layers": (own.num_layers, config.num_layers),
        "head_dim": (own.head_dim, config.head_dim),
        "norm_eps": (own.norm_eps, config.norm_eps),
        "tie_word_embeddings": (own.tie_word_embeddings, config.tie_word_embeddings),
        "attention_bias": (own.attention_bias, config.attention_bias),
        "mlp_bias": (own.mlp_bias, config.mlp_bias),
    }
    for name, (mine, theirs) in pairs.items():
        if mine != theirs:
            what = f"{name} is {mine} in the model and {theirs} in config.json"
            yield _sign(Suspect("loader", f"reading {name}", sources.CONFIG), what)
    for name in ("rope_type", "rope_theta", *SETTINGS_BY_ROPE_TYPE[config.rope["rope_type"]]):
        if _differs(getattr(own.rope, name, None), config.rope.get(name)):
            what = f"{name} is {getattr(own.rope, name, None)} in the model and {config.rope.get(name)} in config.json"
            yield _sign(Suspect("loader", f"reading {name}", sources.ROPE_CONFIG), what)
            return
    due = inverse_frequencies(config.rope, config.head_dim)
    frequencies = model.get_submodule("model.rotary_emb").frequencies
    held = frequencies.to(torch.float64).numpy() if isinstance(frequencies, torch.Tensor) else due
    if not np.allclose(held, due, rtol=_SMALLEST_DIFFERENCE, atol=0):
        what = f"the rotary frequencies are {held[:3]}…, and {due[:3]}… follow from the settings"
        yield _sign(Suspect("model", "rotary frequencies", _FREQUENCIES), what)


def _differs(own: object, theirs: object) -> bool:
    """Tells whether two settings differ; one that a side does not have differs from none."""
    if own is None or theirs is None:
        return False
    if isinstance(own, int | float) and isinstance(theirs, int | float):
        return not math.isclose(own, theirs)
    return own != theirs


def _weights(model: Llama, witness: Witness) -> Iterator[Suspicion]:
    for name, parameter in model.named_parameters(remove_duplicate=False):
        stored = witness.weights.get(name)
        if stored is None:
            what = f"no file holds {name}, and the model has one"
            yield _sign(Suspect("loader", f"checking {name}", sources.LOADER), what)
            return
        due = torch.from_numpy(to_float64(np.asarray(stored))).to(parameter.dtype)
        if parameter.shape != due.shape or not torch.equal(parameter, due):
            what = f"{name} in the model is not what the file holds"
            yield _sign(Suspect("loader", f"reading {name}", sources.LOADER), what)
            return


def _sign(suspect: Suspect, what: str) -> Suspicion:
    return Suspicion(-1, Moment.BEFORE, 0, suspect, what)
