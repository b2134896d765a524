from dataclasses import fields, replace

import pytest

from oracle.engine_spec import EngineSpec, StepScript
from oracle.explain.features import switches_of
from oracle.sampling_spec import SamplingSpec


def without(scenario, name, request=0):
    """A scenario with one feature turned off."""
    (switch,) = [switch for switch in switches_of(scenario, request) if switch.name == name]
    return switch.off(scenario)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("chunking", {"caps": ()}),
        ("preemption", {"recompute": (), "swap": ()}),
        ("row order", {"rotation": 0}),
    ],
)
def test_feature_of_the_script_goes_from_every_step(schedule, name, change):
    script = (StepScript(recompute=(0,), swap=(1,), caps=(2,), rotation=1),) * 2
    changed = without(replace(schedule, script=script), name)
    assert changed.script == tuple(replace(step, **change) for step in script)


def test_swap_becomes_recomputing(schedule):
    scenario = replace(schedule, script=(StepScript(swap=(1,)),), engine=EngineSpec(preemption="swap"))
    changed = without(scenario, "swap")
    assert (changed.script, changed.engine.preemption) == ((StepScript(recompute=(1,)),), "recompute")


def test_other_requests_go_and_the_failing_one_stays(schedule):
    assert without(schedule, "other requests", 1).requests == (schedule.requests[1],)
    assert without(schedule, "other requests", None) == schedule


def test_every_named_sampling_parameter_has_a_switch(schedule):
    changed = without(schedule, "sampling: n")
    assert {request.sampling for request in changed.requests} == {SamplingSpec()}


def test_model_has_switches_only_where_it_is_generated(schedule):
    assert without(schedule, "model: num_kv_heads").checkpoint.num_kv_heads == 2
    names = {switch.name for switch in switches_of(replace(schedule, checkpoint=None), None)}
    assert not any(name.startswith("model: ") for name in names)


def test_every_setting_of_an_engine_has_a_switch(schedule):
    """A failure that needs a setting without one is never told that it does."""
    changed = EngineSpec(
        max_num_batched_tokens=3,
        scheduling="prefill_first",
        block_size=2,
        num_spare_blocks=1,
        enable_prefix_caching=True,
        preemption="swap",
        num_swap_blocks=1,
        placement_seed=1,
        speculative="ngram",
        num_speculative_tokens=2,
        guesses=("wrong",),
        max_model_len_cut=1,
    )
    assert all(getattr(changed, field.name) != field.default for field in fields(EngineSpec))
    scenario = replace(schedule, engine=changed)
    for switch in switches_of(scenario, 0):
        scenario = switch.off(scenario)
    of_guesses = {"num_speculative_tokens", "guesses"}
    left = {field.name for field in fields(EngineSpec) if getattr(scenario.engine, field.name) != field.default}
    assert left == of_guesses, "which mean nothing where nothing guesses"


def test_switches_leave_the_simplest_run_as_it_is(schedule):
    simple = replace(schedule, requests=schedule.requests[1:], script=(), engine=EngineSpec(), max_num_seqs=1)
    same = {switch.name for switch in switches_of(simple, 0) if switch.off(simple) == simple}
    assert {"other requests", "batching", "chunking", "preemption", "swap", "prefix sharing", "placement"} <= same
