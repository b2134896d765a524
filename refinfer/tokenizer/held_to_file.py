"""Is a loaded tokenizer what its tokenizer.json says? Releases of transformers have changed parts of it."""

from importlib.metadata import version
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Backend
from transformers import PreTrainedTokenizerFast

from refinfer.errors import CheckpointError

_PARTS = ("normalizer", "pre_tokenizer", "post_processor", "decoder")
"""What turns text into tokens and back, beside the vocabulary."""


def hold_to_file(tokenizer: PreTrainedTokenizerFast, path: Path) -> None:
    """Refuse a tokenizer in which a release of transformers has changed what tokenizer.json says.

    Raises:
        CheckpointError: A part differs; the message names it.
    """
    theirs, own = tokenizer.backend_tokenizer, Backend.from_file(str(path))
    changed = [part for part in _PARTS if _state(getattr(theirs, part)) != _state(getattr(own, part))]
    if type(theirs.model) is not type(own.model) or _vocab_size(theirs) != _vocab_size(own):
        changed.append("model")
    if changed:
        message = (
            f"transformers {version('transformers')} changes the {', '.join(changed)} of {path}, so text would not "
            f"be what that file says; install another release of transformers"
        )
        raise CheckpointError(message, path=path, changed=changed)


def _state(part: Any) -> object:
    return None if part is None else part.__getstate__()


def _vocab_size(backend: Backend) -> int:
    return backend.get_vocab_size(with_added_tokens=False)
