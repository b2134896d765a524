import pytest

from oracle.explain.explain_scenario import NothingFailed, blame_of, explain_scenario
from oracle.explain.explanation import Need
from oracle.explain.failing_check import FailingCheck
from oracle.faults import FAULTS

PLENTY = 120.0
"""Seconds, so that a busy machine leaves no feature untried."""


def test_case_that_passes_has_nothing_to_explain(symbolic):
    with pytest.raises(NothingFailed):
        explain_scenario(symbolic)


@pytest.mark.parametrize(
    ("fault", "file", "needs"),
    [
        ("values_not_swapped", "refinfer/cache/paged.py", "swap"),
        ("norm_epsilon", "refinfer/model/norm.py", None),
    ],
)
def test_blame_names_the_file_and_what_is_needed(schedule, fault, file, needs):
    with FAULTS[fault].planted():
        explanation = explain_scenario(schedule, seconds=PLENTY if needs else 1.0)
    assert file in explanation.blame.sources
    assert needs is None or needs in explanation.blame.needs
    assert explanation.check in {figure.name for figure in explanation.checks if figure.verdict == "fail"}
    assert explanation.steps


def test_symbolic_case_is_explained_with_its_features(symbolic):
    with FAULTS["outputs_lost_on_preemption"].planted():
        explanation = explain_scenario(symbolic)
    assert (explanation.kind, explanation.survives_watching) == ("symbolic", True)
    assert "refinfer/scheduler/queues.py" in explanation.blame.sources
    needs = {feature.name: feature.need for feature in explanation.features}
    assert needs["preemption"] is Need.NEEDED
    assert needs["speculation"] is Need.NOT_PRESENT


def test_blame_without_a_sign_says_so():
    blame = blame_of([], ("swap",), FailingCheck("schedules", "paged", "tokens differ"))
    assert (blame.component, blame.sources) == ("unknown", ())
    assert "needs: swap" in blame.sentence
