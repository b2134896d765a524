"""Which key or value was computed otherwise first, and how far is each layer off at each position?"""

from torch import Tensor

from oracle.explain.clues import FirstWrite, Place
from oracle.explain.comparing import KEYS, VALUES, differences, first_off, layer_of, num_comparable
from oracle.explain.course import HeatMap
from oracle.explain.lone_pass import LonePasses
from oracle.explain.recording import RowRecord


class Writes:
    """Holds what each row wrote, and what each layer gave for it, to its sample alone.

    Args:
        passes: The samples alone.

    Attributes:
        first: The first key or value that was computed otherwise.
    """

    def __init__(self, passes: LonePasses) -> None:
        self._passes = passes
        self._heat: dict[tuple[int, int], dict[str, list[float | None]]] = {}
        self.first: FirstWrite | None = None

    def look_at(self, row: RowRecord) -> None:
        """Takes in one row; rows come in the order in which they ran."""
        lone = self._passes.of(row.request, row.sample)
        heat = self._heat.setdefault((row.request, row.sample), {})
        for name, own in row.activations.items():
            layer = layer_of(name)
            is_write = name.endswith((KEYS, VALUES))
            is_row = name in ("model.embed_tokens", "lm_head") or name == f"model.layers.{layer}"
            if name not in lone.activations or not (is_write or is_row):
                continue
            start = row.end - len(own)
            theirs = lone.activations[name][start : max(start, row.start + num_comparable(row, lone))]
            difference = differences(own[: len(theirs)], theirs)
            if is_row:
                _warm(heat.setdefault(name, [None] * len(lone.token_ids)), start, difference)
            if not is_write or self.first is not None:
                continue
            offset, largest = first_off(difference, lone.bounds[name])
            if offset is not None:
                place = Place(row.step, row.request, row.sample, start + offset, layer)
                part = "key" if name.endswith(KEYS) else "value"
                self.first = FirstWrite(place, part, largest, lone.bounds[name], None)

    def maps(self) -> tuple[HeatMap, ...]:
        """Gives the differences as they are shown."""
        return tuple(
            HeatMap(
                request,
                sample,
                tuple(rows),
                len(next(iter(rows.values()))),
                tuple(tuple(own) for own in rows.values()),
            )
            for (request, sample), rows in sorted(self._heat.items())
            if rows
        )


def _warm(cells: list[float | None], start: int, difference: Tensor) -> None:
    """Takes in how far each position is off."""
    for place, value in enumerate(difference.tolist(), start):
        old = cells[place]
        new = -1.0 if value != value or value == float("inf") else value  # noqa: PLR0124 - only NaN differs from itself
        cells[place] = new if old is None or new == -1.0 else max(old, new)
