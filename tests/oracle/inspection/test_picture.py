"""Pictures are whole SVG files that load nothing, know light and dark, and lay no text over another."""

import re
from dataclasses import replace
from itertools import combinations
from unittest.mock import Mock
from xml.etree import ElementTree as ET

import pytest

from oracle.drive import Drive
from oracle.errors import ScenarioError
from oracle.explain.course import HeatMap
from oracle.inspection import picture
from oracle.inspection.picture import blocks_picture, heat_picture, legend_of, steps_picture
from oracle.inspection.watched import watch
from oracle.scenario import RequestSpec
from refinfer.errors import InvariantError

SVG = "{http://www.w3.org/2000/svg}"
HEAT = HeatMap(0, 0, ("request 0", "request 1"), 4, ((0.0, 1e-7, 0.5, -1.0), (0.0, 0.0, None, None)))
HOSTILE = "<script>alert(1)</script> & \"'"


@pytest.fixture(scope="module")
def pictures(seen):
    """One of each kind."""
    return {
        "steps": steps_picture(seen),
        "blocks": blocks_picture(seen),
        "heat": heat_picture("Differences", "one against the other", HEAT),
    }


def legend_words(text):
    """What the signs of a picture are said to stand for."""
    root = ET.fromstring(text)  # noqa: S314 - it is our own
    return [own.text for own in root.iter(f"{SVG}text") if own.get("class") == "legend-words"]


KINDS = pytest.mark.parametrize("kind", ["steps", "blocks", "heat"])


@KINDS
def test_picture_is_one_file_that_needs_nothing(pictures, kind):
    root = ET.fromstring(pictures[kind])  # noqa: S314 - it is our own
    assert root.tag == f"{SVG}svg"
    assert [float(root.attrib[name]) > 0 for name in ("width", "height")] == [True, True]
    links = [value for own in root.iter() for name, value in own.attrib.items() if name.endswith("href")]
    assert all(link.startswith("#") for link in links)
    ids = {own.get("id") for own in root.iter()} - {None}
    assert {link[1:] for link in links} <= ids
    assert set(re.findall(r"url\(#([\w-]+)\)", pictures[kind])) <= ids
    assert not re.findall(r"url\((?!#)|@import|<script|<image", pictures[kind])
    assert "prefers-color-scheme: dark" in pictures[kind]


@KINDS
def test_picture_uses_no_colour_that_is_not_defined(pictures, kind):
    text = pictures[kind]
    assert set(re.findall(r"var\((--[\w-]+)\)", text)) <= set(re.findall(r"(--[\w-]+):", text))


@KINDS
def test_legend_explains_each_sign_once_and_lies_within(pictures, kind):
    words = legend_words(pictures[kind])
    assert words
    assert len(words) == len(set(words))


def test_legend_entries_never_overlap():
    legend = legend_of({str(number): "word " * (number + 1) for number in range(9)}, 300)
    room = {own.kind: (own.x, own.x + 34 + 7 * len(own.words)) for own in legend.entries}
    for one, other in combinations(legend.entries, 2):
        if one.y == other.y:
            assert room[one.kind][1] <= room[other.kind][0]
    assert max(own.y for own in legend.entries) < legend.height


def test_steps_picture_draws_every_row(pictures, seen):
    bars = re.findall(
        r'class="bar (?:prefill|decode)" x="[\d.]+" y="[\d.]+" width="[\d.]+" height="[\d.]+"', pictures["steps"]
    )
    assert len(bars) == sum(len(step.rows) for step in seen.steps)


def test_heat_picture_draws_each_difference(pictures):
    assert pictures["heat"].count("position 1: 1e-07") == 1
    assert "position 3: not a number" in pictures["heat"]
    assert "equal bit for bit" in pictures["heat"]
    near = heat_picture("Differences", "", HEAT, [(1, 2, 3e-7)])
    assert near.count("request 1, position 2: 3e-07, near") == 1
    assert "near, 3e-07 at most" in near


def test_picture_writes_hostile_words_as_text():
    text = heat_picture(HOSTILE, HOSTILE, HEAT)
    assert "<script" not in text
    assert HOSTILE in "".join(ET.fromstring(text).itertext())  # noqa: S314


def test_blocks_picture_refuses_a_mode_without_blocks(symbolic):
    with pytest.raises(ScenarioError, match="mode 'continuous' has no blocks"):
        blocks_picture(watch(symbolic, mode="continuous"))


@pytest.mark.parametrize(
    ("draw", "words"), [(steps_picture, "has no step that could be drawn"), (blocks_picture, "no step was taken")]
)
def test_picture_refuses_a_run_without_steps(schedule, monkeypatch, draw, words):
    monkeypatch.setattr(Drive, "run", Mock(side_effect=InvariantError("nobody came in")))
    with pytest.raises(ScenarioError, match=words):
        draw(watch(schedule, mode="paged"))


def test_steps_picture_of_a_mode_without_blocks_has_no_blocks_below(symbolic, pictures):
    picture = steps_picture(watch(symbolic, mode="continuous"))
    assert "blocks held" in pictures["steps"]
    assert "blocks held" not in picture


def test_a_long_run_is_drawn_in_part(seen, monkeypatch, pictures):
    monkeypatch.setattr(picture, "MOST_STEPS", 3)
    for kind, text in (("steps", steps_picture(seen)), ("blocks", blocks_picture(seen))):
        assert "the first 3 of 7 steps" in text
        assert "the first" not in pictures[kind]
        assert len(text) < len(pictures[kind])


def test_legend_of_blocks_leaves_out_what_is_not_drawn(symbolic, pictures):
    requests = (RequestSpec((1, 2, 3), max_tokens=2, ignore_eos=True),)
    engine = replace(symbolic.engine, enable_prefix_caching=False)
    found = watch(replace(symbolic, requests=requests, engine=engine, script=()), mode="paged")
    words = ["shared", "the prefix map finds it", "kept by the prefix map only", "written in this step"]
    assert legend_words(pictures["blocks"])[-4:] == words
    assert legend_words(blocks_picture(found)) == ["request 0", "written in this step"]


def test_requests_of_one_colour_stand_together_in_the_legend(symbolic):
    requests = tuple(RequestSpec((1, 2, place), max_tokens=2, ignore_eos=True) for place in range(10))
    text = blocks_picture(watch(replace(symbolic, requests=requests, script=()), mode="paged"))
    assert legend_words(text)[:3] == ["request 0, 8", "request 1, 9", "request 2"]
