from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from oracle.matrix.kills import RULES, SIGHTS, FaultRow, Kill, KillMatrix, Location
from oracle.matrix.picture import picture_of, shade_of, write_picture
from oracle.scenario import RequestSpec, Scenario

KILL = Kill("cases", 7, 1.25, "<seen> & said")
ROWS = (
    FaultRow(
        "norm_epsilon",
        "model",
        ("refinfer/model/norm.py",),
        expected=("greedy", "bitwise"),
        first=KILL,
        kills={"greedy": KILL},
        rule_kills={"1e-3": KILL},
        case=Scenario((RequestSpec((1, 2), max_tokens=2),)),
        location=Location(("refinfer/model/norm.py",), "norm", 0.1),
    ),
    FaultRow("never_seen", "blocks", expected=("state",)),
)
MATRIX = KillMatrix(ROWS, {}, {})


def test_picture_is_well_formed_and_refers_to_nothing_outside_it():
    picture = picture_of(MATRIX)
    ET.fromstring(picture)  # noqa: S314 - our own text
    assert "href" not in picture
    assert "url(" not in picture


def test_picture_says_what_the_rows_say():
    root = ET.fromstring(picture_of(MATRIX))  # noqa: S314 - our own text
    texts = [text.strip() for text in root.itertext() if text.strip()]
    assert "1.2 s · 1 req., 4 tokens · located" in texts
    assert {"norm_epsilon", "never_seen", "not caught", "model", "blocks", *SIGHTS, *RULES} <= set(texts)
    assert "norm_epsilon, greedy: example 7 of cases" in texts
    assert "norm_epsilon, bitwise: expected, and not seen" in texts
    assert "What sees each planted fault first: 1 of 2 caught" in texts


@pytest.mark.parametrize(("number", "shade"), [(1, 1), (2, 2), (10, 2), (11, 3), (100, 3), (101, 4)])
def test_fewer_examples_are_darker(number, shade):
    assert shade_of(Kill("cases", number, 0.0, "")) == shade


def test_picture_of_the_notes_is_that_of_their_matrix():
    notes = Path(__file__).parents[3] / "notes"
    matrix = KillMatrix.load(notes / "faults" / "kill-matrix.json")
    assert picture_of(matrix) == (notes / "images" / "kill-matrix.svg").read_text(encoding="utf-8")


def test_picture_is_written(tmp_path):
    write_picture(MATRIX, tmp_path / "matrix.svg")
    assert (tmp_path / "matrix.svg").read_text(encoding="utf-8").startswith("<svg")
