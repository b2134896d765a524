"""Pictures are well-formed, show every value, and put it where it belongs."""

from typing import Any
from xml.etree import ElementTree as ET

import pytest

from tests.benchmarks.charts import Axis, bars, curves, round_top, short
from tests.benchmarks.pictures import pictures_of

SVG = "{http://www.w3.org/2000/svg}"


def parsed(picture):
    """The picture as a tree, which fails where it is not well-formed."""
    return ET.fromstring(picture)  # noqa: S314 (it was drawn a moment ago)


def texts(picture):
    return [element.text for element in picture.iter(f"{SVG}text")]


def test_bars_are_as_long_as_their_values():
    picture = parsed(bars("a < b", "s", {"one & two": 2.0, "half": 1.0, "none": 0.0}))
    widths = [float(bar.get("width")) for bar in picture.iter(f"{SVG}rect")][1:]
    assert widths == [320, 160, 0]
    assert {"a < b", "one & two", "half", "none", "2", "1", "0"} <= set(texts(picture))


def test_curves_rise_with_their_values_from_zero():
    drawn = curves("t", Axis("x"), Axis("y"), {"a": [[0, 0.0], [5, 5.0], [10, 10.0]], "b": [[0, 10.0], [10, 0.0]]})
    picture = parsed(drawn)
    lines = [
        [tuple(map(float, spot.split(","))) for spot in line.get("points").split()]
        for line in picture.iter(f"{SVG}polyline")
    ]
    (left, bottom), (middle, half), (right, top) = lines[0]
    assert middle == (left + right) / 2
    assert half == (bottom + top) / 2
    assert top < bottom
    assert lines[1] == [(left, top), (right, bottom)]
    assert {"t", "x", "y", "a", "b"} <= set(texts(picture))


def test_logarithmic_axis_has_equal_steps_for_equal_factors_and_room_for_zero():
    points = [[0, 1.0], [10, 1.0], [100, 1.0], [1000, 1.0]]
    picture = parsed(curves("t", Axis("x", is_logarithmic=True), Axis("y"), {"a": points}))
    xs = [float(spot.get("cx")) for spot in picture.iter(f"{SVG}circle")]
    assert xs == sorted(set(xs))
    assert xs[2] - xs[1] == pytest.approx(xs[3] - xs[2], abs=0.2)


@pytest.mark.parametrize("points", [{"a": [[0, 0.0]]}, {"a": [[3, 1.0], [3, 2.0]]}], ids=["one", "one place"])
def test_curves_of_a_single_place_are_drawn(points):
    assert parsed(curves("t", Axis("x", is_logarithmic=True), Axis("y"), points)) is not None


@pytest.mark.parametrize(
    ("value", "top"), [(34.9, 40), (18.9, 20), (10.0, 10), (10.1, 12), (0.026, 0.032), (9.9, 10), (0.0, 1.0)]
)
def test_axis_ends_at_a_round_number(value, top):
    assert round_top(value) == pytest.approx(top)


@pytest.mark.parametrize(("value", "text"), [(0.0, "0"), (0.01234, "0.0123"), (12.34, "12.3"), (1234.5, "1234")])
def test_short_gives_three_digits(value, text):
    assert short(value) == text


def test_every_kind_of_report_becomes_a_picture():
    entry = {"name": "static", "throughput": 3.0, "num_steps": 4}
    reports: list[dict[str, Any]] = [
        {"kind": "peers", "workload": "W1", "engines": [entry]},
        {"kind": "prefix", "workload": "W3", "engines": [entry]},
        {"kind": "uneven", "workload": "high", "engines": [entry]},
        {"kind": "growth", "charts": {"waiting": {"a": [[0, 1e-5], [10, 2e-5]]}, "pool": {"exact": [[8, 1e-3]]}}},
        {"kind": "harness"},
    ]
    pictures = pictures_of(reports)
    assert set(pictures) == {"peers-w1", "prefix-w3", "uneven", "growth-waiting", "growth-pool"}
    assert "20" in texts(parsed(pictures["growth-waiting"])), "in microseconds"
    assert "1" in texts(parsed(pictures["growth-pool"])), "in milliseconds"
