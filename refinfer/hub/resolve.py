"""Finds the checkpoint folder that a user's word for a model means."""

import re
from pathlib import Path

from huggingface_hub import snapshot_download
from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

from refinfer.errors import CheckpointError, ConfigError
from refinfer.hub.known_models import KNOWN_MODELS, KnownModel, model_folder
from refinfer.hub.manifest import find_damage

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")

_WANTED = ["*.json", "*.safetensors", "tokenizer.model", "merges.txt", "chat_template.jinja"]
_WANTED_WITHOUT_SAFETENSORS = ["pytorch_model*.bin"]
"""Weights of `torch.save`, where there are no others; many repositories hold both."""

_UNWANTED = ["*/*", "consolidated*.safetensors"]
"""Subfolders, and weights in the publisher's own layout beside those in Hugging Face's."""


def resolve_model(model: str | Path) -> Path:
    """Gives the checkpoint folder of a model.

    Args:
        model: A folder; or the name of a fetched model, such as "smollm2"; or an id on the Hugging Face hub,
            "owner/name", which is downloaded unless it is in the hub's own cache. A folder that exists comes first.

    Raises:
        CheckpointError: The folder does not exist, the model has not been fetched, or the hub does not give it.
        ConfigError: It is none of the three.
    """
    folder = Path(model).expanduser()
    if model != "" and folder.is_dir():  # the empty path means the current folder, an empty word means nothing
        return folder
    if isinstance(model, Path) or model.startswith((".", "/", "~")):
        message = f"{folder} is not a folder; give the folder that holds config.json and the weights"
        raise CheckpointError(message, folder=folder)
    if model in KNOWN_MODELS:
        return _fetched(KNOWN_MODELS[model])
    if _HUB_ID.fullmatch(model):
        return _from_hub(model)
    message = (
        f"model {model!r} is neither a folder here, nor one that can be fetched ({', '.join(KNOWN_MODELS)}), "
        "nor a hub id of the form owner/name"
    )
    raise ConfigError(message, model=model)


def _fetched(model: KnownModel) -> Path:
    folder = model_folder(model)
    damage = find_damage(folder, model, with_hashes=False)
    if damage is not None:
        message = f"{model.name} is not in {folder}: {damage}; run `python -m refinfer fetch {model.name}`"
        raise CheckpointError(message, name=model.name, folder=folder)
    return folder


def _from_hub(hub_id: str) -> Path:
    try:
        folder = Path(snapshot_download(hub_id, allow_patterns=_WANTED, ignore_patterns=_UNWANTED))
        if not any(folder.glob("*.safetensors")):
            snapshot_download(hub_id, allow_patterns=_WANTED_WITHOUT_SAFETENSORS, ignore_patterns=_UNWANTED)
    except GatedRepoError as error:
        message = f"{hub_id} is gated; accept its terms on its page, run `hf auth login`, and try again"
        raise CheckpointError(message, hub_id=hub_id) from error
    except RepositoryNotFoundError as error:
        message = f"{hub_id} is neither a folder here nor a model on the hub that you may see; check the name"
        raise CheckpointError(message, hub_id=hub_id) from error
    except Exception as error:  # the client lets errors of its HTTP library through, and that changes
        message = (
            f"{hub_id} is no folder here, and the hub did not give it: {_first_line(error)}; "
            "check the network, or give a folder with the checkpoint"
        )
        raise CheckpointError(message, hub_id=hub_id) from error
    return folder


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__
