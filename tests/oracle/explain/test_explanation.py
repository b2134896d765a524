import json
from dataclasses import replace

import pytest

from oracle.errors import ScenarioError
from oracle.explain.clues import Blame, FirstOperation, FirstRead, FirstToken, FirstWrite, Place, Rung
from oracle.explain.course import HeatMap, Step, StepRow
from oracle.explain.explanation import CheckFigure, Explanation, Feature, Need

PLACE = Place(4, 1, 0, 17, 0)

WHOLE = Explanation(
    kind="schedule",
    subject="paged",
    check="schedules",
    message="paged, request 1, sample 0: token_ids is (3,)",
    blame=Blame("cache", "copy on write", ("refinfer/cache/paged.py",), "copy on write loses values", ("sharing",)),
    checks=(CheckFigure("schedules", "paged", "fail", "token_ids differ"), CheckFigure("bits", "paged", "pass")),
    rungs=(Rung("token", is_reached=True, note="request 1"),),
    token=FirstToken(PLACE, 3, "token", "5", "7", 0.25, 0.5, 1e-5, "wrong"),
    write=FirstWrite(PLACE, "key", 0.5, 0.0, 2),
    read=FirstRead(PLACE, None, None, 2, "nothing", is_bookkeeping=True),
    operation=FirstOperation("model.norm", PLACE, 0.5, 0.0, ("model.layers.0",), "alone"),
    features=(Feature("sharing", Need.NEEDED, "enable_prefix_caching is off"),),
    minimal=("sharing",),
    steps=(Step(0, (StepRow(0, 0, 0, 5, 0, (7,)),), arrived=(0,), copied_blocks=((1, 2),), num_used_blocks=3),),
    heat=(HeatMap(0, 0, ("embed", "lm_head"), 2, ((0.0, None), (None, 0.5))),),
    scenario={"version": 4},
    command="python -m oracle replay CASE.json --explain",
    survives_watching=True,
    seconds=1.5,
)


def test_explanation_is_the_same_after_json():
    assert Explanation.from_data(json.loads(json.dumps(WHOLE.to_data()))) == WHOLE


def test_explanation_without_clues_is_the_same_after_json():
    bare = replace(WHOLE, token=None, write=None, read=None, operation=None, minimal=None, steps=(), heat=())
    assert Explanation.from_data(json.loads(json.dumps(bare.to_data()))) == bare


@pytest.mark.parametrize("change", [{"explanation": 0}, {"token": {"place": 1}}, {"unknown": 1}])
def test_explanation_refuses_other_data(change):
    with pytest.raises(ScenarioError):
        Explanation.from_data({**WHOLE.to_data(), **change})
