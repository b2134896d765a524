"""Scenarios are plain data: they survive JSON, and what is no scenario is refused by name."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracle.engine_spec import GUESSES, SPECULATIVES, EngineSpec
from oracle.errors import ScenarioError
from oracle.scenario import SCENARIO_VERSION, RequestSpec, Scenario
from oracle.strategies import model_scenarios, scenarios

ALL_SCENARIOS = st.one_of(scenarios(), model_scenarios(vocab_size=49152))
TEXTS = st.lists(st.text(), max_size=3).map(tuple)
THREE = Scenario(requests=tuple(RequestSpec((token_id,), max_tokens=token_id) for token_id in (1, 2, 3)))


@given(scenario=ALL_SCENARIOS, texts=TEXTS)
def test_scenario_survives_json(scenario, texts):
    scenario = replace(scenario, texts=texts)
    copy = Scenario.from_json(scenario.to_json())
    assert copy == scenario
    assert hash(copy) == hash(scenario)


@pytest.mark.parametrize("speculative", [None, *SPECULATIVES])
def test_scenario_with_guesses_survives_json(speculative):
    engine = EngineSpec(speculative=speculative, num_speculative_tokens=7, guesses=GUESSES)
    scenario = replace(THREE, engine=engine)
    copy = Scenario.from_json(scenario.to_json())
    assert copy == scenario
    assert copy.engine.guesses == GUESSES
    assert hash(copy) == hash(scenario)


def test_file_from_before_guesses_is_refused():
    raw = json.loads(THREE.to_json())
    assert raw["version"] == SCENARIO_VERSION == 4
    with pytest.raises(ScenarioError, match="version"):
        Scenario.from_json(json.dumps(raw | {"version": 3}))


@given(scenario=ALL_SCENARIOS)
def test_scenario_survives_a_file(scenario, tmp_path_factory):
    path = tmp_path_factory.mktemp("scenario") / "case.json"
    path.write_text(scenario.to_json(), encoding="utf-8")
    assert Scenario.load(path) == scenario


@given(version=st.one_of(st.integers(), st.text(), st.none(), st.floats(allow_nan=False)))
def test_from_json_refuses_another_version(version):
    raw = {**json.loads(THREE.to_json()), "version": version}
    if version == SCENARIO_VERSION:
        assert Scenario.from_json(json.dumps(raw)) == THREE
        return
    with pytest.raises(ScenarioError, match=f"reads version {SCENARIO_VERSION}") as caught:
        Scenario.from_json(json.dumps(raw))
    assert caught.value.version == version


@given(text=st.text())
def test_from_json_refuses_text_that_is_no_scenario(text):
    with pytest.raises(ScenarioError):
        Scenario.from_json(text)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda values: st.lists(values) | st.dictionaries(st.text(), values),
    max_leaves=5,
)


@given(value=JSON_VALUES)
def test_from_json_refuses_json_that_is_no_scenario(value):
    with pytest.raises(ScenarioError):
        Scenario.from_json(json.dumps(value))


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("requests",), None),
        (("requests",), []),
        (("requests",), [None]),
        (("requests",), [{}]),
        (("requests", 0, "prompt_token_ids"), "abc"),
        (("requests", 0, "prompt_token_ids"), [0.5]),
        (("requests", 0, "prompt_token_ids"), []),
        (("requests", 0, "max_tokens"), 0),
        (("requests", 0, "max_tokens"), "many"),
        (("requests", 0, "ignore_eos"), 1),
        (("requests", 0, "cuts"), [0]),
        (("requests", 0, "cuts"), [1]),
        (("requests", 0, "unknown"), 1),
        (("dtype",), "float8"),
        (("dtype",), None),
        (("max_num_seqs",), 0),
        (("max_num_seqs",), "16"),
        (("texts",), "abc"),
        (("texts",), [1]),
        (("engine", "speculative"), "x"),
        (("engine", "num_speculative_tokens"), 0),
        (("engine", "guesses"), []),
        (("engine", "guesses"), ["x"]),
        (("engine", "guesses"), "right"),
        (("engine", "guesses"), None),
        (("checkpoint",), {"unknown": 1}),
        (("checkpoint",), "smollm2"),
        (("unknown",), 1),
    ],
)
def test_from_json_refuses_a_scenario_that_cannot_run(place, value):
    raw = json.loads(THREE.to_json())
    target = raw
    for key in place[:-1]:
        target = target[key]
    target[place[-1]] = value
    with pytest.raises(ScenarioError):
        Scenario.from_json(json.dumps(raw))


@pytest.mark.parametrize("cuts", [(0,), (3,), (-1,), (2, 1), (1, 1)])
def test_request_refuses_cuts_that_do_not_ascend_inside_the_prompt(cuts):
    with pytest.raises(ScenarioError, match="cuts"):
        RequestSpec((5, 6, 7), cuts=cuts)


@pytest.mark.parametrize("content", [b"\xff\xfe", None], ids=["no text", "no file"])
def test_load_refuses_what_cannot_be_read(tmp_path, content):
    path = tmp_path / "case.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ScenarioError, match=r"case\.json cannot be read"):
        Scenario.load(path)


def test_load_refuses_a_folder(tmp_path):
    with pytest.raises(ScenarioError, match="cannot be read"):
        Scenario.load(tmp_path)


@pytest.mark.parametrize("index", [0, 1, 2])
def test_alone_keeps_one_request_and_everything_else(index):
    alone = THREE.alone(index)
    assert alone.requests == (THREE.requests[index],)
    assert replace(alone, requests=THREE.requests) == THREE


@given(order=st.permutations(range(3)).map(tuple))
def test_reordered_changes_the_order_and_nothing_else(order):
    reordered = THREE.reordered(order)
    assert reordered.requests == tuple(THREE.requests[index] for index in order)
    assert replace(reordered, requests=THREE.requests) == THREE
