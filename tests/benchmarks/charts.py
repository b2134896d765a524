"""Pictures of figures, as SVG by themselves: bars, and curves over a logarithmic or a plain axis."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from oracle.templates import templates_of

COLOURS = ("#2f6fb0", "#c2571a", "#3b8a4b", "#8a4fa0", "#8c6d1f", "#5a5a5a")

_LEFT, _TOP, _WIDTH, _HEIGHT = 80, 48, 500, 240
_BAR, _GAP, _NAMES = 22, 10, 240


@dataclass(frozen=True)
class Axis:
    """One axis of a chart of curves.

    Attributes:
        title: What is counted, with its unit.
        is_logarithmic: Whether equal steps are equal factors; a place of 0 then stands at the left end.
    """

    title: str
    is_logarithmic: bool = False


def bars(title: str, unit: str, value_by_name: Mapping[str, float]) -> str:
    """Draws one bar for each name, with its value behind it.

    Args:
        title: Stands above.
        unit: What the values are.
        value_by_name: At least one value, none negative.
    """
    largest = max(value_by_name.values()) or 1.0
    drawn = [
        {"name": name, "y": _TOP + index * (_BAR + _GAP), "width": 320 * value / largest, "text": short(value)}
        for index, (name, value) in enumerate(value_by_name.items())
    ]
    height = _TOP + len(drawn) * (_BAR + _GAP) + 16
    return _render("bars.svg", title=title, unit=unit, bars=drawn, height=height, left=_NAMES, thickness=_BAR)


def curves(title: str, across: Axis, up: Axis, points_by_name: Mapping[str, Sequence[Sequence[float]]]) -> str:
    """Draws a curve through the points of each name; the upward axis begins at 0.

    Args:
        title: Stands above.
        across: The axis of the first number of each point.
        up: The axis of the second.
        points_by_name: At least one curve, of pairs of numbers that are not negative.
    """
    places = sorted({point[0] for points in points_by_name.values() for point in points})
    highest = round_top(max(point[1] for points in points_by_name.values() for point in points))
    to_x = _scale(places, across)
    drawn = []
    for index, (name, points) in enumerate(points_by_name.items()):
        spots = [(to_x(place), _TOP + _HEIGHT * (1 - value / highest)) for place, value in points]
        drawn.append({"name": name, "colour": COLOURS[index % len(COLOURS)], "spots": spots})
    rungs = [{"y": _TOP + _HEIGHT * (1 - share), "text": short(highest * share)} for share in (0, 0.25, 0.5, 0.75, 1)]
    ticks = [{"x": to_x(place), "text": short(place)} for place in places]
    frame = {"left": _LEFT, "top": _TOP, "right": _LEFT + _WIDTH, "bottom": _TOP + _HEIGHT}
    return _render("curves.svg", title=title, across=across, up=up, curves=drawn, rungs=rungs, ticks=ticks, **frame)


def round_top(value: float) -> float:
    """Gives the end of an axis: the least number from a value on of which a quarter has at most two digits."""
    if value <= 0:
        return 1.0
    unit = 10.0 ** math.floor(math.log10(value))
    return next(factor * unit for factor in (1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8, 10) if factor * unit >= value)


def short(value: float) -> str:
    """Gives a number in three digits."""
    if value == 0 or value >= 100:
        return f"{value:.0f}"
    return f"{value:.3g}"


def _scale(places: Sequence[float], axis: Axis) -> Callable[[float], float]:
    def moved(place: float) -> float:
        if not axis.is_logarithmic:
            return place
        least = min((other for other in places if other > 0), default=1.0)
        return math.log(max(place, least / 3) / least)

    first, last = moved(places[0]), moved(places[-1])
    span = (last - first) or 1.0
    return lambda place: _LEFT + 16 + (_WIDTH - 32) * (moved(place) - first) / span


def _render(template: str, **values: object) -> str:
    return templates_of("tests.benchmarks").get_template(template).render(**values)
