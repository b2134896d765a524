from oracle.contract.scenario import EngineScenario
from oracle.engines.declaration import EngineDeclaration
from oracle.engines.messages import EngineRequest
from oracle.explain.engine_features import engine_switches
from oracle.families import FamilySpec

FIRST = EngineRequest("r0", (1, 2, 3), 4, {"temperature": 1.0, "top_k": 3}, arrival=2, abort_after=1)
SECOND = EngineRequest("r1", (4,), 2, {"min_tokens": 1})
SCENARIO = EngineScenario((FIRST, SECOND), {"block_size": 4}, FamilySpec("qwen2", head_dim=32), before=((SECOND,),))
DECLARATION = EngineDeclaration("made up", knobs={"block_size": [16, 4]}, families=("llama", "qwen2"))


def without(name):
    """The run with one feature turned off."""
    (switch,) = [switch for switch in engine_switches(SCENARIO, "r1", DECLARATION) if switch.name == name]
    return switch.off(SCENARIO)


def test_each_switch_turns_off_one_feature():
    assert without("earlier runs").before == ()
    assert without("other requests").requests == (SECOND,)
    assert [request.arrival for request in without("arrivals").requests] == [0, 0]
    assert [request.abort_after for request in without("aborts").requests] == [None, None]
    assert [request.max_tokens for request in without("decoding").requests] == [1, 1]
    assert without("knob: block_size").knobs == {"block_size": 16}
    assert without("model family").family.family == "llama"


def test_parameters_that_mean_nothing_without_a_draw_go_with_temperature():
    assert without("sampling: temperature").requests[0].parameters == {}
    assert without("sampling: top_k").requests[0].parameters == {"temperature": 1.0}


def test_turned_off_family_is_the_shape_that_the_engine_was_opened_with():
    """The first family has to be made with the width of head, and of model, that the engine takes."""
    declaration = EngineDeclaration("made up", families=("llama", "qwen2"), head_dims=(64, 32))
    (switch,) = [switch for switch in engine_switches(SCENARIO, "r1", declaration) if switch.name == "model family"]
    family = switch.off(SCENARIO).family
    assert family == FamilySpec.for_engine("llama", (64, 32))
    assert family.head_dim == 64
