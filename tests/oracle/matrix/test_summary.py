from pathlib import Path

from oracle.matrix.kills import FaultRow, Kill, KillMatrix, Location
from oracle.matrix.summary import summarise
from oracle.scenario import RequestSpec, Scenario

NOTES = Path(__file__).parents[3] / "notes"
SMALL = Scenario((RequestSpec((1, 2), max_tokens=2),))
LARGE = Scenario((RequestSpec((1,) * 9, max_tokens=4),))


def kill(seconds):
    """A kill after so many seconds."""
    return Kill("cases", 1, seconds, "seen")


ROWS = (
    FaultRow(
        "one",
        "model",
        ("refinfer/model/norm.py",),
        expected=("greedy", "bitwise"),
        first=kill(1.0),
        kills={"greedy": kill(1.0)},
        rule_kills={"1e-3": kill(2.0)},
        case=SMALL,
        location=Location(("refinfer/model/norm.py",), "norm", 0.1),
    ),
    FaultRow(
        "two",
        "model",
        first=kill(5.0),
        kills={"greedy": kill(5.0), "state": kill(6.0)},
        case=LARGE,
        location=Location((), "nothing", 0.1),
    ),
    FaultRow("three", "blocks", expected=("state",)),
)


def test_figures_are_those_of_the_rows():
    summary = summarise(ROWS)
    assert (summary.num_faults, summary.num_caught, summary.uncaught) == (3, 2, ("three",))
    assert summary.median_seconds == 3.0
    assert summary.slowest is ROWS[1]
    assert (summary.num_small, summary.num_with_case) == (1, 2)
    assert (summary.num_located, summary.num_located_first, summary.mislocated) == (1, 1, ("two",))


def test_figures_of_the_notes_are_those_of_their_matrix():
    summary = summarise(KillMatrix.load(NOTES / "faults" / "kill-matrix.json").rows)
    assert summary.slowest is not None
    text = (NOTES / "10-planted-faults.md").read_text(encoding="utf-8")
    for words in (
        f"{summary.num_caught} of {summary.num_faults} are caught",
        f"the first kill comes after {summary.median_seconds:.2f} s in the median",
        f"(`{summary.slowest.fault}`)",
        f"{summary.num_small} of {summary.num_with_case} shrunk cases are within",
        f"{summary.num_located} are located",
        f"In {summary.num_located_first} of them it is the first file",
        *(f"`{name}`" for name in summary.mislocated),
        f"see {summary.num_by_any_rule} of {summary.num_faults} together",
        f"greedy equality {summary.num_by_rule['greedy equality']} by itself",
        f"the law of draws {summary.num_by_sight['distribution']}",
        f"The law of draws sees {summary.num_by_sight_alone['distribution']} that nothing else sees",
    ):
        assert words in text


def test_ways_are_counted_one_by_one():
    summary = summarise(ROWS)
    assert {name: number for name, number in summary.num_by_sight.items() if number} == {"greedy": 2, "state": 1}
    assert {name: number for name, number in summary.num_by_sight_alone.items() if number} == {"greedy": 1}
    assert {name: number for name, number in summary.num_by_rule.items() if number} == {"1e-3": 1}
    assert summary.num_by_any_rule == 1
    assert {name: number for name, number in summary.num_unexpected.items() if number} == {"greedy": 1, "state": 1}
    assert {name: faults for name, faults in summary.missing.items() if faults} == {
        "bitwise": ("one",),
        "state": ("three",),
    }


def test_no_rows_have_no_figures():
    summary = summarise(())
    assert (summary.num_caught, summary.median_seconds, summary.slowest) == (0, 0.0, None)
