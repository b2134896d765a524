"""The script says of planted bugs whether the file in which they sit is blamed."""

import pytest

from debug.blamed_faults import is_named, main
from oracle.faults import FAULTS

pytestmark = pytest.mark.without_shape_checks


def test_script_names_the_files_of_planted_bugs(capsys):
    assert main(["outputs_lost_on_preemption", "norm_epsilon"]) == 0
    text = capsys.readouterr().out
    assert "2 of 2 named" in text
    assert "sits in refinfer/scheduler/queues.py" in text


def test_places_are_those_that_the_fault_tells_of_itself():
    assert set(FAULTS["stop_token_ids_ignored"].sources) == {"refinfer/engine/core.py", "refinfer/sampling/stopping.py"}
    assert callable(is_named)
