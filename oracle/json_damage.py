"""Draws damage to a JSON file: a value, a key or a nesting that is not what it should be."""

import json
import random
from collections.abc import Iterator
from typing import Any

_DEEP = "[" * 100_000 + "]" * 100_000
_LONG = json.dumps("x" * 100_000)

_ODD_VALUES = (
    *("null", "true", "false", "0", "-0.0", "-1", "1", "2", "3", "7", "1.5", "32.0", "1e-30", "1e308", "1e999"),
    *("NaN", "Infinity", "-Infinity", str(2**31), str(2**63), str(2**64), "-1000000000000", "1000000000000"),
    *("1" + "0" * 30, "1" + "0" * 400, "1" + "0" * 5000, '""', '"0"', '"false"', '"linear"', '"\\ud800"', '"\\u0000"'),
    *("[]", "{}", "[null]", '{"a": 1}', '{"type": null}', "[[[[[]]]]]", '"../../etc/passwd"', '"/"', _DEEP, _LONG),
)
"""Written as JSON, or as what passes for it."""

_WHOLE = ("", "[]", "null", "3", '"text"', "{", "{}", _DEEP, "\ufeff{}", '{"a": 1} {"a": 1}')
"""What a file may hold in all."""

_MARK = "value drawn by seed"


def damaged_json(text: str, rng: random.Random) -> tuple[str, str]:
    """Damages the text of a JSON file in one place.

    Returns:
        The damaged text, and what was done to it.
    """
    if rng.random() < 0.04:  # noqa: PLR2004  # seldom, since every loader sees it
        whole = rng.choice(_WHOLE)
        return whole, f"the whole file becomes {whole[:20]!r}"
    contents = json.loads(text)
    parent, key = rng.choice(list(_places(contents)))
    match rng.randrange(5):
        case 0:
            del parent[key]
            return json.dumps(contents), f"{key!r} is gone"
        case 1:
            return _replaced(contents, parent, key, f"{json.dumps(parent[key])}, {json.dumps(parent[key])}", "doubled")
        case 2 if isinstance(parent, dict):
            value = rng.choice(_ODD_VALUES)
            twice = f"{json.dumps(parent[key])}, {json.dumps(key)}: {value}"
            return _replaced(contents, parent, key, twice, f"there again as {value[:20]}")
        case _:
            value = rng.choice(_ODD_VALUES)
            return _replaced(contents, parent, key, value, value[:20])


def _replaced(contents: object, parent: Any, key: str | int, value: str, words: str) -> tuple[str, str]:
    parent[key] = _MARK
    return json.dumps(contents).replace(json.dumps(_MARK), value), f"{key!r} is {words}"


def _places(contents: object, depth: int = 0) -> Iterator[tuple[Any, Any]]:
    """Gives where values stand, those further out more often: there are far more of them inside."""
    items = (
        contents.items() if isinstance(contents, dict) else enumerate(contents) if isinstance(contents, list) else ()
    )
    pairs = list(items)
    for key, value in pairs[:: 1 + len(pairs) // 40]:
        yield from [(contents, key)] * max(1, 6 - 2 * depth)
        yield from _places(value, depth + 1)
