import json
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from oracle.errors import OracleError
from oracle.explain.clues import Rung
from oracle.explain.explain_scenario import explain_scenario
from oracle.explain.explanation import Explanation
from oracle.explain.show import show_explanation, steps_table
from oracle.faults import FAULTS


def shown(explanation):
    """An explanation as it stands on a terminal."""
    console = Console(file=StringIO(), width=120)
    with console.capture() as capture:
        show_explanation(console, explanation)
    return capture.get()


def test_verdict_comes_first_then_ladder_features_and_steps(symbolic):
    with FAULTS["outputs_lost_on_preemption"].planted():
        explanation = explain_scenario(symbolic, command="python -m oracle replay CASE.json --explain")
    text = shown(explanation)
    lines = text.splitlines()
    assert lines[0].startswith("blame: scheduler: preemption of request")
    assert lines[1].startswith("look in: refinfer/scheduler/queues.py")
    for words in ("needed", "not present", "admitted", "python -m oracle replay"):
        assert words in text
    again = Explanation.from_data(json.loads(json.dumps(explanation.to_data())))
    assert shown(again) == text


def test_rung_that_is_reached_without_an_answer_is_refused(whole):
    """It was shown with the features that the failure needs."""
    rungs = (*whole.rungs, Rung("tables", is_reached=True, note=""))
    with pytest.raises(OracleError, match="rung 'tables' is reached, and what it found is missing") as caught:
        shown(replace(whole, rungs=rungs))
    assert caught.value.rung == "tables"


def test_steps_stand_in_a_table_of_their_own(whole):
    table = steps_table(whole.steps, {2})
    assert table.row_count == len(whole.steps)
    assert [row.style for row in table.rows] == ["", "", "red", ""]
