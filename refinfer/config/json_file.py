"""Reads one JSON object of a checkpoint folder, or says what is wrong with it."""

import json
from pathlib import Path
from typing import Any

from refinfer.errors import CheckpointError


def read_json_object(path: Path) -> dict[str, Any]:
    """Reads a JSON file that must hold an object.

    Raises:
        CheckpointError: The file is absent, is not JSON, or holds something else than an object.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        message = (
            f"{path} does not exist; a checkpoint folder needs {path.name}, "
            "so give the folder that holds it or save the model again"
        )
        raise CheckpointError(message, path=path) from error
    except (ValueError, RecursionError, OSError) as error:
        message = f"{path} cannot be read as JSON ({error}); save the file again"
        raise CheckpointError(message, path=path) from error
    if not isinstance(value, dict):
        message = f"{path} holds a {type(value).__name__}, not a JSON object; save the file again"
        raise CheckpointError(message, path=path)
    return value
