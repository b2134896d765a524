import re
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from oracle.matrix.kills import FaultRow, Kill, KillMatrix, Location
from oracle.matrix.show import show_matrix, show_row
from oracle.scenario import RequestSpec, Scenario

KILL = Kill("cases", 7, 1.25, "seen")
LOCATED = FaultRow(
    "norm_epsilon",
    "model",
    ("refinfer/model/norm.py",),
    expected=("greedy", "bitwise"),
    first=KILL,
    kills={"greedy": KILL},
    rule_kills={"1e-3": KILL},
    case=Scenario((RequestSpec((1, 2), max_tokens=2),)),
    location=Location(("refinfer/model/norm.py",), "norm", 0.1),
)
UNSEEN = FaultRow("never_seen", "blocks", examples={"cases": 20, "model schedules": 60})


def shown(show, *arguments, **options):
    """What is printed on a narrow terminal."""
    text = StringIO()
    show(Console(file=text, width=80), *arguments, **options)
    return text.getvalue()


def test_row_names_each_way_with_its_examples():
    assert shown(show_row, LOCATED) == (
        "norm_epsilon (model): caught in 1.2 s by greedy 7; 1 requests, 4 tokens; located in refinfer/model/norm.py\n"
    )


@pytest.mark.parametrize(
    ("location", "words"),
    [
        (
            Location(("refinfer/model/llama.py", "refinfer/model/norm.py"), "norm", 0.1),
            "located in refinfer/model/norm.py, named behind refinfer/model/llama.py",
        ),
        (
            Location(("refinfer/model/mlp.py",), "mlp: silu", 0.1),
            "not located in refinfer/model/norm.py; blamed: refinfer/model/mlp.py; mlp: silu",
        ),
        (
            Location((), "no single case shows it again", 0.1),
            "not located in refinfer/model/norm.py; blamed: nothing; no single case shows it again",
        ),
    ],
    ids=["behind another file", "another file", "no file"],
)
def test_row_tells_what_is_blamed_where_that_is_not_the_place(location, words):
    assert shown(show_row, replace(LOCATED, location=location)).endswith(f"; 1 requests, 4 tokens; {words}\n")


def test_row_of_a_false_alarm_tells_what_is_blamed():
    row = replace(LOCATED, sources=())
    assert shown(show_row, row).endswith("; not located; blamed: refinfer/model/norm.py; norm\n")


@pytest.mark.parametrize(("is_none", "words"), [(False, "NOT CAUGHT"), (True, "no alarm")])
def test_row_that_nothing_saw_tells_how_much_was_looked_at(is_none, words):
    assert shown(show_row, UNSEEN, is_none=is_none) == f"never_seen (blocks): {words} in 20 cases, 60 model schedules\n"


def shown_matrix(*rows):
    """The lines, and the cells of the table by the first of their row."""
    lines = shown(show_matrix, KillMatrix(rows, {}, {})).splitlines()
    assert all(len(line) <= 80 for line in lines)
    cells = [re.split(" {2,}", line.strip()) for line in lines if line.startswith("  ")]
    return lines, {row[0]: row[1:] for row in cells}


def test_matrix_tells_what_was_seen_that_no_fault_lists():
    lines, cells = shown_matrix(replace(LOCATED, expected=("bitwise",)))
    assert cells["greedy"] == ["1", "1", "7", "1", "·"]
    assert "unexpected: seen, though the fault does not list this way" in " ".join(lines)


def test_matrix_is_shown_by_ways_and_in_figures():
    lines, cells = shown_matrix(LOCATED, UNSEEN)
    assert cells["way of looking"] == ["sees", "alone", "examples", "unexpected", "missed"]
    assert cells["greedy"] == ["1", "1", "7", "·", "·"]
    assert cells["bitwise"] == ["0", "·", "·", "·", "1"]
    assert cells["state"] == ["0", "·", "·", "·", "·"]
    assert cells["usual rule: 1e-3"] == ["1", "7"]
    assert "1 of 2 faults caught" in lines
    assert "not caught: never_seen" in lines
    assert "first kill after 1.25 s in the median, 1.2 s at most (norm_epsilon)" in lines
    assert "1 of 1 shrunk cases within 3 requests and 12 tokens" in lines
    assert "1 of 1 located, 1 of them by the first file that is named" in lines
    assert "the usual rules on the same cases see 1 together, at most 1 by one (1e-3)" in lines


def test_matrix_names_what_was_not_located():
    lines, _ = shown_matrix(LOCATED, replace(LOCATED, fault="astray", sources=()))
    assert "1 of 2 located, 1 of them by the first file that is named" in lines
    assert "not located: astray" in lines


def test_matrix_tells_where_no_usual_rule_sees_anything():
    lines, _ = shown_matrix(UNSEEN)
    assert lines[-1] == "the usual rules on the same cases see 0"
