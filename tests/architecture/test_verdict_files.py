"""Scenario files and known deviations that stand beside the verdicts can be read, and are linked from their note."""

import re
from pathlib import Path

import pytest

from oracle.contract.judging import CHECKS
from oracle.contract.known import load_known
from oracle.contract.scenario import EngineScenario

NOTES = Path(__file__).parents[2] / "notes"
NOTE = (NOTES / "13-verdicts.md").read_text(encoding="utf-8")
CASES = sorted((NOTES / "verdicts" / "cases").glob("*.json"))
KNOWN = sorted((NOTES / "verdicts" / "known").glob("*.json"))


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_case_is_a_scenario_that_its_note_links(path):
    scenario = EngineScenario.load(path)
    assert scenario.check in CHECKS
    assert scenario.requests
    assert f"(verdicts/cases/{path.name})" in NOTE


@pytest.mark.parametrize("path", KNOWN, ids=lambda path: path.stem)
def test_known_deviations_name_checks_and_reasons(path):
    deviations = load_known(path)
    assert deviations
    assert all(each.check in CHECKS and each.reason for each in deviations)


def test_every_link_of_the_note_leads_to_a_file():
    links = re.findall(r"\]\((verdicts/[^)]+)\)", NOTE)
    assert links
    assert [link for link in links if not (NOTES / link).is_file()] == []
