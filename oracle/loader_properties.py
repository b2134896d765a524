"""Is a broken checkpoint refused, by name? Known ways of breaking one and their errors, and damage that is drawn."""

import json
import shutil
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from oracle.case import Case
from oracle.damage import damage, outcome
from oracle.errors import OutcomeMismatch
from oracle.observation import Observation
from refinfer import load_model
from refinfer.errors import (
    CheckpointError,
    ConfigError,
    MissingWeightError,
    RefinferError,
    UnexpectedWeightError,
    UnsupportedModelError,
    WeightShapeError,
)

_NUM_TRUNCATED_BYTES = 4
_NUM_DRAWN = 2
"""Drawn damages of one case, beside the known ways."""


def _weight_file(folder: Path) -> Path:
    return max(folder.glob("*.safetensors"))


def truncate(folder: Path) -> None:
    """Cuts the last bytes off a file."""
    path = _weight_file(folder)
    path.write_bytes(path.read_bytes()[:-_NUM_TRUNCATED_BYTES])


def delete(folder: Path) -> None:
    """Deletes a file."""
    _weight_file(folder).unlink()


def drop_weight(folder: Path) -> None:
    """Takes the final norm out of the file and the index."""
    for path in folder.glob("*.safetensors"):
        weights = load_file(path)
        if weights.pop("model.norm.weight", None) is not None:
            save_file(weights, path)
    index = folder / "model.safetensors.index.json"
    if index.exists():
        content = json.loads(index.read_text(encoding="utf-8"))
        del content["weight_map"]["model.norm.weight"]
        index.write_text(json.dumps(content), encoding="utf-8")


def add_weight(folder: Path) -> None:
    """Puts a weight into a file that no Llama has."""
    path = _weight_file(folder)
    save_file({**load_file(path), "model.extra.weight": torch.zeros(2)}, path)


def widen_weight(folder: Path) -> None:
    """Makes the first weight of a file one row longer."""
    path = _weight_file(folder)
    weights = load_file(path)
    name = min(weights)
    weights[name] = torch.cat([weights[name], weights[name][:1]])
    save_file(weights, path)


def _edit_config(**changes: object) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        path = folder / "config.json"
        config = json.loads(path.read_text(encoding="utf-8"))
        path.write_text(json.dumps({**config, **changes}), encoding="utf-8")

    return edit


BREAKAGES: dict[str, tuple[Callable[[Path], None], type[RefinferError]]] = {
    "truncated file": (truncate, CheckpointError),
    "missing file": (delete, CheckpointError),
    "missing weight": (drop_weight, MissingWeightError),
    "unexpected weight": (add_weight, UnexpectedWeightError),
    "wrong shape": (widen_weight, WeightShapeError),
    "another architecture": (_edit_config(model_type="mistral"), UnsupportedModelError),
    "another activation": (_edit_config(hidden_act="relu"), UnsupportedModelError),
    "unknown RoPE type": (
        _edit_config(rope_parameters=None, rope_scaling={"rope_type": "yarn", "factor": 2.0}),
        UnsupportedModelError,
    ),
    "contradicting RoPE keys": (
        _edit_config(rope_parameters={"rope_theta": 1.5}, rope_theta=2.5),
        ConfigError,
    ),
    "sliding window": (_edit_config(sliding_window=8), UnsupportedModelError),
}
"""Each way of breaking a checkpoint, with the family of the error that must answer."""


def check_breakages(folder: Path) -> int:
    """Breaks copies of a checkpoint in every way and holds the loader to a refusal by name.

    Returns:
        How many ways were tried.

    Raises:
        OutcomeMismatch: A broken checkpoint loads, or another error answers.
    """
    for name, (break_it, expected) in BREAKAGES.items():
        with tempfile.TemporaryDirectory() as parent:
            copy = Path(parent) / "checkpoint"
            shutil.copytree(folder, copy)
            break_it(copy)
            try:
                load_model(copy)
            except expected:
                continue
            except RefinferError as error:
                message = f"{name}: answered by {type(error).__name__} ({error}), expected {expected.__name__}"
                raise OutcomeMismatch(message, breakage=name) from error
            message = f"{name}: the broken checkpoint loaded, expected {expected.__name__}"
            raise OutcomeMismatch(message, breakage=name)
    return len(BREAKAGES)


def check_damages(folder: Path, first_seed: int, num_drawn: int) -> int:
    """Damages copies of a checkpoint as drawn: each answers all the same, or is refused by one of our errors.

    Returns:
        How many were tried.

    Raises:
        OutcomeMismatch: Another error came through.
    """
    for seed in range(first_seed, first_seed + num_drawn):
        with tempfile.TemporaryDirectory() as parent, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # whatever a damaged file makes a library say
            copy = Path(parent) / "checkpoint"
            shutil.copytree(folder, copy)
            words = damage(copy, seed)
            try:
                outcome(copy)
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                message = f"damaged file (seed {seed}), {words}: {type(error).__name__} ({error}) came through"
                raise OutcomeMismatch(message, seed=seed, damage=words) from error
    return num_drawn


def check_broken_checkpoints(case: Case, mode: str) -> Observation:  # noqa: ARG001 - loading has no mode
    """Holds the loader to a refusal by name for every way of breaking the checkpoint, and for drawn damage."""
    num_tried = check_breakages(case.folder)
    spec = case.scenario.checkpoint
    seed = 0 if spec is None else int(spec.digest[:8], 16)
    return Observation(witnessed=num_tried + check_damages(case.folder, seed, _NUM_DRAWN) > 0)
