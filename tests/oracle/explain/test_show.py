import json
from io import StringIO

from rich.console import Console

from oracle.explain.explain_scenario import explain_scenario
from oracle.explain.explanation import Explanation
from oracle.explain.show import show_explanation
from oracle.faults import FAULTS

FEW = 1.0
"""Seconds: the search for features gets its share in any case."""


def shown(explanation):
    """An explanation as it stands on a terminal."""
    console = Console(file=StringIO(), width=120)
    with console.capture() as capture:
        show_explanation(console, explanation)
    return capture.get()


def test_verdict_comes_first_then_ladder_features_and_steps(schedule):
    with FAULTS["values_not_swapped"].planted():
        explanation = explain_scenario(schedule, seconds=FEW, command="python -m oracle replay CASE.json --explain")
    lines = shown(explanation).splitlines()
    assert lines[0].startswith("blame: cache: swapping blocks of request")
    assert lines[1].startswith("look in: refinfer/cache/paged.py")
    text = "\n".join(lines)
    assert "written in step" in text
    assert "not present" in text
    assert "python -m oracle replay CASE.json --explain" in text
    again = Explanation.from_data(json.loads(json.dumps(explanation.to_data())))
    assert shown(again) == shown(explanation)
