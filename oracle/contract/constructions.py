"""In which settings is an engine opened? A pairwise covering array of its knobs, with shapes of families in turn."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, count, islice, product, zip_longest
from math import lcm
from typing import Any

from allpairspy import AllPairs

from oracle.engines.declaration import EngineDeclaration
from oracle.family_shapes import family_of, shapes_of


@dataclass(frozen=True)
class Construction:
    """One way of opening an engine.

    Attributes:
        knobs: One value for each knob.
        family: The model family, or a variant of one.
    """

    knobs: dict[str, Any]
    family: str


def covering_array(declaration: EngineDeclaration) -> list[dict[str, Any]]:
    """Gives settings in which every legal pair of knob values comes up; the first has the simplest of each."""
    knobs = declaration.knobs
    several = OrderedDict((name, list(range(len(values)))) for name, values in knobs.items() if len(values) > 1)
    fixed = {name: values[0] for name, values in knobs.items() if len(values) == 1}
    simplest = {name: values[0] for name, values in knobs.items()}

    def with_values(places: Sequence[int]) -> dict[str, Any]:
        names = list(several)[: len(places)]
        return fixed | {name: knobs[name][place] for name, place in zip(names, places, strict=True)}

    if len(several) < 2:  # noqa: PLR2004 - a pair needs two
        rows = [simplest] + [{**simplest, name: value} for name in several for value in knobs[name][1:]]
        return [row for row in rows if not is_excluded(declaration, row)]
    array = AllPairs(several, filter_func=lambda places: not is_excluded(declaration, with_values(places)))
    rows = [with_values(tuple(row)) for row in array]
    if simplest not in rows and not is_excluded(declaration, simplest):
        rows.insert(0, simplest)
    return sorted(rows + _rows_that_lack(declaration, rows), key=lambda row: row != simplest)


def _rows_that_lack(declaration: EngineDeclaration, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Gives rows for legal pairs that do not come up yet; where much is excluded, the array leaves some out."""
    seen = {pair for row in rows for pair in _pairs(row)}
    more: list[dict[str, Any]] = []
    for (one, values), (other, others) in combinations(declaration.knobs.items(), 2):
        for pair in ({one: value, other: its} for value, its in product(values, others)):
            row = None if _pairs(pair) <= seen else _legal_row(declaration, pair)
            if row is not None:
                more.append(row)
                seen |= _pairs(row)
    return more


def _legal_row(declaration: EngineDeclaration, chosen: dict[str, Any]) -> dict[str, Any] | None:
    """Gives a row that has some values, and else the simplest that are not excluded; None where there is none."""
    if is_excluded(declaration, chosen):
        return None
    name = next((name for name in declaration.knobs if name not in chosen), None)
    if name is None:
        return chosen
    rows = (_legal_row(declaration, {**chosen, name: value}) for value in declaration.knobs[name])
    return next((row for row in rows if row is not None), None)


def is_excluded(declaration: EngineDeclaration, values: dict[str, Any]) -> bool:
    """Tells whether an engine declares that it does not take a combination."""
    return any(
        all(name in values and _is_named(name, values[name], value) for name, value in excluded.items())
        for excluded in declaration.excluded_knobs
    )


def _is_named(name: str, value: object, excluded: object) -> bool:
    """Tells whether a value is the excluded one; a family stands for all its variants."""
    return value == excluded or (name == "family" and isinstance(value, str) and family_of(value) == excluded)


def shapes_in_turn(families: Sequence[str]) -> list[str]:
    """Gives all shapes of some families: first the usual one of each, then a variant of each, and so on."""
    rounds = zip_longest(*(shapes_of(family) for family in families))
    return [shape for shapes in rounds for shape in shapes if shape is not None]


def constructions(
    declaration: EngineDeclaration, families: Sequence[str], number: int, seed: int = 0
) -> list[Construction]:
    """Gives so many constructions, going through the covering array and the families in turn.

    Args:
        declaration: What the engine says of itself.
        families: Names of shapes, as `shapes_in_turn` gives them.
        number: How many; fewer come only where nearly everything is excluded.
        seed: Another one goes on where the one before it ended.
    """
    rows = covering_array(declaration) or [{}]
    # Equal steps pair the same rows with the same families after a while; then one family further, until each row
    # has met each family.
    period = lcm(len(rows), len(families))
    tried = islice(count(seed * number), 4 * max(number, len(rows)))
    pairs = ((rows[place % len(rows)], families[(place + place // period) % len(families)]) for place in tried)
    legal = (
        Construction(row, family) for row, family in pairs if not is_excluded(declaration, {**row, "family": family})
    )
    return list(islice(legal, number))


def num_pairs(rows: Sequence[dict[str, Any]]) -> int:
    """Counts different pairs of knob values that come up in settings."""
    return len({pair for row in rows for pair in _pairs(row)})


def _pairs(row: dict[str, Any]) -> set[tuple[tuple[str, str], tuple[str, str]]]:
    return set(combinations(sorted((name, repr(value)) for name, value in row.items()), 2))
