"""Which token ids end a request, as the checkpoint says."""

from pathlib import Path

from refinfer.config.json_file import read_json_object
from refinfer.config.model_config import CONFIG_FILE
from refinfer.errors import ConfigError

GENERATION_CONFIG_FILE = "generation_config.json"


def load_eos_token_ids(folder: Path) -> tuple[int, ...]:
    """Reads the end-of-sequence ids of a checkpoint folder, each once, in the order given.

    What generation_config.json says counts; where it says nothing, config.json does.
    A checkpoint may name several ids. The reference decides alike but for one case: a generation_config.json
    that names no id keeps it from ever stopping, whatever config.json says.
    A tokenizer may name one more, which `LoadedModel` adds.

    Raises:
        ConfigError: An id is not a whole number of at least 0.
    """
    for name in (GENERATION_CONFIG_FILE, CONFIG_FILE):
        path = folder / name
        if not path.exists():
            continue
        value = read_json_object(path).get("eos_token_id")
        if value is None:
            continue
        token_ids = value if isinstance(value, list) else [value]
        for token_id in token_ids:
            if isinstance(token_id, bool) or not isinstance(token_id, int) or token_id < 0:
                message = f"eos_token_id in {path} is {value!r}; it must be one token id or a list of them"
                raise ConfigError(message, path=path, value=value)
        return tuple(dict.fromkeys(token_ids))
    return ()
