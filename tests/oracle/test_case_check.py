"""A report says of every check what it saw, or why it failed."""

import pytest

from oracle.case_check import CaseReport, CaseTask, check_case
from oracle.checkpoints import CheckpointSpec
from oracle.errors import LogitsMismatch, ReferenceUnavailable
from oracle.observation import Observation
from oracle.properties import Property
from oracle.scenario import RequestSpec, Scenario
from oracle.subjects import RefinferSubject

pytestmark = pytest.mark.without_shape_checks

SCENARIO = Scenario((RequestSpec((1, 2), max_tokens=3),), checkpoint=CheckpointSpec())


def prop(name, check):
    """A property for a test."""
    return Property(name, "Does it hold?", check)


def holds(case, mode):
    """A check that passes."""
    del case, mode
    return Observation(num_positions=7)


def fails(case, mode):
    """A check that does not."""
    del case
    message = f"{mode} is wrong"
    raise LogitsMismatch(message)


def cannot_judge(case, mode):
    """A check that lacks what it needs."""
    del case, mode
    message = "no reference"
    raise ReferenceUnavailable(message)


def report_of(*checks, **settings) -> CaseReport:
    """What is seen of the case in the mode without a cache."""
    pairs = tuple((prop(f"p{place}", check), "none") for place, check in enumerate(checks))
    return check_case(CaseTask(0, SCENARIO, None, pairs, **settings))


def test_failed_check_costs_no_other_check():
    seen = report_of(fails, holds).seen
    assert seen == {("p0", "none"): "none is wrong", ("p1", "none"): Observation(num_positions=7)}


def test_first_failure_is_the_last_check_when_told_to():
    assert list(report_of(holds, fails, holds, stop_at_failure=True).seen) == [("p0", "none"), ("p1", "none")]


def test_case_that_cannot_be_judged_raises():
    with pytest.raises(ReferenceUnavailable, match="no reference"):
        report_of(cannot_judge)


def test_digests_are_made_of_the_modes_that_are_named():
    assert report_of(holds).digest_lines == ()
    lines = report_of(holds, digest_modes=("static", "paged")).digest_lines
    assert [line.rpartition(" ")[0] for line in lines] == [
        f"case 0 float32 invariant {mode} request 0 row {row}" for mode in ("static", "paged") for row in range(3)
    ]


def test_mode_that_raises_gets_a_line_of_its_own(monkeypatch):
    def raises(subject, requests):
        del subject, requests
        raise IndexError

    monkeypatch.setattr(RefinferSubject, "run", raises)
    assert report_of(holds, digest_modes=("none",)).digest_lines == ("case 0 float32 invariant none raised IndexError",)
