"""A known deviation covers what it names and nothing else, and its file is read as it stands or refused."""

import json

import pytest

from oracle.contract.findings import Finding, Kind
from oracle.contract.known import KnownDeviation, first_cover, load_known
from oracle.contract.scenario import EngineScenario
from oracle.engines.messages import EngineRequest
from oracle.errors import ScenarioError
from oracle.families import FamilySpec

FINDING = Finding("tokens", Kind.WRONG, "a token", "r1", blame=("top_k",))
SCENARIO = EngineScenario(
    (EngineRequest("r0", (1,), 1, {"min_p": 0.1}), EngineRequest("r1", (1,), 1, {"top_k": 3})),
    {"block_size": 4},
    FamilySpec("gemma2"),
)


@pytest.mark.parametrize(
    ("fields", "covers"),
    [
        ({}, True),
        ({"check": "ends"}, False),
        ({"blame": "top_k"}, True),
        ({"blame": "min_p"}, False),
        ({"family": "gemma2"}, True),
        ({"family": "llama"}, False),
        ({"knobs": (("block_size", 4),)}, True),
        ({"knobs": (("block_size", 16),)}, False),
        ({"parameters": ("top_k",)}, True),
        ({"parameters": ("min_p",)}, False),
    ],
    ids=str,
)
def test_deviation_covers_what_it_names(fields, covers):
    deviation = KnownDeviation(**{"check": "tokens", "reason": "waits", **fields})
    assert deviation.covers(FINDING, SCENARIO) is covers
    assert (first_cover((deviation,), FINDING, SCENARIO) is deviation) is covers


@pytest.mark.parametrize(("family", "answer"), [("gemma2", True), ("gemma2:no-caps", True), ("gemma2:tied", False)])
def test_deviation_of_a_family_is_one_of_its_variants_too(family, answer):
    scenario = EngineScenario((), family=FamilySpec("gemma2:no-caps"))
    assert KnownDeviation("tokens", "waits", family=family).covers(FINDING, scenario) is answer


def test_deviation_of_a_family_does_not_cover_what_has_no_scenario():
    assert KnownDeviation("tokens", "waits").covers(FINDING, None)
    assert not KnownDeviation("tokens", "waits", family="llama").covers(FINDING, None)


def test_deviation_without_parameters_covers_a_scenario_without_requests():
    """An engine that does not even open has run none."""
    finding = Finding("alive", Kind.WRONG, "it crashed")
    scenario = EngineScenario((), {"block_size": 4}, FamilySpec("gemma2"))
    assert KnownDeviation("alive", "waits", family="gemma2").covers(finding, scenario)
    assert not KnownDeviation("alive", "waits", parameters=("top_k",)).covers(finding, scenario)


def test_file_names_deviations_by_their_fields(tmp_path):
    path = tmp_path / "known.json"
    entry = {"check": "tokens", "reason": "waits", "knobs": {"block_size": 4}, "parameters": ["top_k"]}
    path.write_text(json.dumps([entry]))
    (deviation,) = load_known(path)
    assert deviation.covers(FINDING, SCENARIO)
    assert str(deviation) == "tokens × block_size=4 × top_k"


@pytest.mark.parametrize("text", ["", "{}x", "[3]", '[{"check": "tokens"}]', '[{"check": "a", "reason": "b", "c": 1}]'])
def test_other_files_are_refused(tmp_path, text):
    path = tmp_path / "known.json"
    path.write_text(text)
    with pytest.raises(ScenarioError, match="holds no list of known deviations"):
        load_known(path)
