"""What callers pass, as plain Python: values of NumPy and torch, and names that nobody knows."""

from collections.abc import Collection
from difflib import get_close_matches
from typing import Any

_LIKENESS = 0.5
"""How alike two names are, from 0 to 1, of which one may have been meant for the other."""


def as_plain(value: Any) -> Any:
    """Return numbers, arrays and tensors of another library as Python numbers and lists, other values as they are."""
    tolist = None if isinstance(value, type | memoryview) else getattr(value, "tolist", None)
    return tolist() if callable(tolist) else value


def meant(name: str, known: Collection[str]) -> str:
    """Return a question after the known name that is most like an unknown one, for a message; "" where none is."""
    likely = get_close_matches(name, known, n=1, cutoff=_LIKENESS)
    return f"did you mean {likely[0]}? " if likely else ""
