"""Every planted fault is caught, leaves nothing behind, and is the only reason for the alarm."""

from collections import Counter
from dataclasses import replace
from importlib import import_module
from inspect import getattr_static
from pkgutil import iter_modules

import pytest
from hypothesis import strategies as st

import oracle.faults
from oracle.case import Case
from oracle.check import CheckSettings
from oracle.checkpoints import CheckpointSpec
from oracle.errors import FaultNotCaught
from oracle.faults import FAULTS, LAW_FAULTS, NO_OP_FAULTS, SCHEDULE_FAULTS, Area, Fault
from oracle.faults.facts import Facts
from oracle.faults.hunt import Catch, hunt
from oracle.faults.registry import Replacement, one_replacement
from oracle.faults.schedule_hunt import hunt_law, hunt_schedules, run_watched
from oracle.properties import PROPERTIES, observe
from oracle.rejection_law import check_rejection_law, check_sampled_law
from oracle.sampling_spec import SamplingSpec
from oracle.scenario import RequestSpec, Scenario
from oracle.strategies import scenarios
from oracle.subjects import MODES
from oracle.symbolic_check import run_symbolic
from oracle.tiny_tokenizer import TOKENIZER_SIZE
from refinfer.numerics.plain import PlainNumerics

pytestmark = pytest.mark.without_shape_checks

NUM_SCHEDULES = 300
"""Seeds 0, 1 and 2 needed 65, 214 and 262 for the fault that each of them saw last."""

NUM_CASES_OF_THE_LAW = 100

PROPERTY_FAULTS = tuple(name for name in FAULTS if name not in (*SCHEDULE_FAULTS, *LAW_FAULTS))
"""Faults that the properties of generated cases are to catch."""

SWITCHES = {**FAULTS, **NO_OP_FAULTS}
"""Everything that can be planted."""


BUSY = Scenario(
    requests=(
        RequestSpec((5, 9, 0, 17, 2, 30), max_tokens=6, cuts=(2, 3), ignore_eos=True),
        RequestSpec((11,), max_tokens=3),
        RequestSpec((0, 0, 44, 44, 81, 81, 20, 3), max_tokens=8, cuts=(5,)),
        RequestSpec((77, 12, 100), max_tokens=1),
        RequestSpec(tuple(range(50, 70)), max_tokens=7, cuts=(16,), ignore_eos=True),
    ),
    max_num_seqs=3,
    texts=("the <s>other</s> one", "日本 \U0001f600", "<|user|>x"),
    checkpoint=CheckpointSpec(
        num_heads=4,
        num_kv_heads=2,
        vocab_size=TOKENIZER_SIZE + 14,
        rope_type="llama3",
        rope_theta=500000.0,
        rope_factor=32.0,
        attention_bias=True,
        mlp_bias=True,
        legacy_rope_keys=True,
        num_shards=2,
        eos_token_ids=tuple(range(1, TOKENIZER_SIZE, 4)),
        num_tied_rows=16,
        with_tokenizer=True,
    ),
)
"""One case in which nearly everything happens that a fault could spoil."""

BUSY_IN_BFLOAT16 = replace(
    BUSY, requests=(BUSY.requests[0], RequestSpec((7, 8, 9) * 100, max_tokens=2)), dtype="bfloat16"
)

BUSY_OF_ODD_WIDTH = replace(BUSY, checkpoint=replace(BUSY.checkpoint or CheckpointSpec(), intermediate_size=172))
"""A width that leaves elements over at the end of a loop over whole vectors."""

BUSY_WITH_TIED_HEAD = replace(BUSY, checkpoint=replace(BUSY.checkpoint or CheckpointSpec(), tie_word_embeddings=True))

BUSY_CASES = CheckSettings(
    modes=MODES,
    strategy=st.sampled_from((BUSY, BUSY_IN_BFLOAT16, BUSY_OF_ODD_WIDTH, BUSY_WITH_TIED_HEAD)),
    folder=None,
    num_examples=4,
    seed=0,
    shrink=False,
    stop_at_failure=True,
)
GENERATED_CASES = replace(BUSY_CASES, strategy=scenarios(), num_examples=12)

NO_OP = Fault("no_op", Area.MODEL, "nothing is wrong", (Replacement(PlainNumerics, "silu", PlainNumerics.silu),))


@pytest.mark.parametrize("name", SCHEDULE_FAULTS)
def test_fault_is_caught_by_schedules(name):
    """By one that holds once the fault is pulled out again."""
    catch = hunt_schedules(FAULTS[name], num_schedules=NUM_SCHEDULES)
    if catch.scenario.is_symbolic:
        run_watched(catch.scenario)
        run_symbolic(catch.scenario, "paged")


@pytest.mark.parametrize(
    ("area", "num_schedules"), [(Area.BLOCKS, 40), (Area.SPECULATIVE, 40), (Area.DRAFTING, 15), (Area.PAGED, 5)]
)
def test_schedules_raise_no_alarm_without_a_fault(area, num_schedules):
    with pytest.raises(FaultNotCaught, match=f"passed {num_schedules} schedules unseen"):
        hunt_schedules(replace(NO_OP, area=area), num_schedules=num_schedules)


@pytest.mark.parametrize("name", NO_OP_FAULTS)
def test_fault_that_is_none_raises_no_alarm_in_schedules(name):
    num_schedules = 3 if NO_OP_FAULTS[name].area is Area.PAGED else 20
    with pytest.raises(FaultNotCaught, match=f"passed {num_schedules} schedules unseen"):
        hunt_schedules(NO_OP_FAULTS[name], num_schedules=num_schedules)


def test_state_of_a_case_for_a_model_is_watched_too():
    """Its token ids are those of a larger vocabulary, and a penalty looks up each of them."""
    sampling = SamplingSpec(repetition_penalty=1.5, logit_bias=((90, 1.0), (74, 2.0)), stop_token_ids=(81,))
    requests = (RequestSpec((95, 17, 3), max_tokens=4, sampling=sampling), RequestSpec((60,), max_tokens=2))
    assert run_watched(Scenario(requests)).num_steps > 0


@pytest.mark.parametrize("name", LAW_FAULTS)
def test_fault_is_caught_by_the_law(name):
    assert "the law of the tokens is" in hunt_law(FAULTS[name], num_cases=NUM_CASES_OF_THE_LAW)
    check_rejection_law(NUM_CASES_OF_THE_LAW, 0)
    check_sampled_law(NUM_CASES_OF_THE_LAW, 0)


def test_the_law_raises_no_alarm_without_a_fault():
    with pytest.raises(FaultNotCaught, match=r"fault no_op \(nothing is wrong\) passed 100 pairs .* unseen") as caught:
        hunt_law(NO_OP, num_cases=NUM_CASES_OF_THE_LAW)
    assert caught.value.num_cases == NUM_CASES_OF_THE_LAW


@pytest.mark.parametrize("name", PROPERTY_FAULTS)
def test_fault_is_caught(name):
    """By a property that holds on the very same case once the fault is pulled out again."""
    catch = hunt(FAULTS[name], BUSY_CASES)
    assert catch.scenario is not None
    (prop,) = (prop for prop in PROPERTIES if prop.name == catch.property_name)
    observe(prop, Case(catch.scenario), catch.mode)


@pytest.mark.parametrize("name", ["norm_epsilon", "padding_attended", "first_eos_only"])
def test_fault_is_caught_on_generated_cases_too(name):
    assert hunt(FAULTS[name], GENERATED_CASES).num_cases <= 12


@pytest.mark.parametrize("cases", [BUSY_CASES, GENERATED_CASES], ids=["busy", "generated"])
def test_fault_that_changes_nothing_raises_no_alarm(cases):
    with pytest.raises(FaultNotCaught, match=r"fault no_op \(nothing is wrong\) passed") as caught:
        hunt(NO_OP, cases)
    assert caught.value.num_cases == cases.num_examples


def attributes(fault):
    """What stands where the fault is planted, without calling descriptors."""
    return [vars(replacement.owner).get(replacement.attribute) for replacement in fault.replacements]


@pytest.mark.parametrize("fault", SWITCHES.values(), ids=SWITCHES)
def test_switch_puts_the_fault_in_and_takes_it_out(fault):
    before = attributes(fault)
    with fault.planted():
        for replacement, original in zip(fault.replacements, before, strict=True):
            assert getattr_static(replacement.owner, replacement.attribute) is replacement.value
            assert replacement.value is not original
    assert all(now is then for now, then in zip(attributes(fault), before, strict=True))


@pytest.mark.parametrize("fault", SWITCHES.values(), ids=SWITCHES)
def test_fault_is_taken_out_when_the_block_raises(fault):
    before = attributes(fault)
    with pytest.raises(KeyboardInterrupt), fault.planted():
        raise KeyboardInterrupt
    assert all(now is then for now, then in zip(attributes(fault), before, strict=True))


@pytest.mark.parametrize("fault", SWITCHES.values(), ids=SWITCHES)
def test_fault_replaces_what_exists(fault):
    """A renamed method would leave a fault that changes nothing."""
    for replacement in fault.replacements:
        assert hasattr(replacement.owner, replacement.attribute)


def test_fault_half_of_which_cannot_be_planted_leaves_nothing():
    original = vars(PlainNumerics)["silu"]
    broken = replace(
        NO_OP,
        replacements=(Replacement(PlainNumerics, "silu", None), Replacement(PlainNumerics, "no_such_method", None)),
    )
    with pytest.raises(AttributeError, match="no_such_method"), broken.planted():
        pytest.fail("planted")
    assert vars(PlainNumerics)["silu"] is original


def test_list_has_faults_of_every_area_under_names_of_their_own():
    assert len(FAULTS) >= 15
    assert {fault.area for fault in FAULTS.values()} == set(Area)
    assert all(fault.name == name and name.isidentifier() and fault.bug for name, fault in FAULTS.items())
    bugs = Counter(fault.bug for fault in FAULTS.values())
    assert max(bugs.values()) == 1


def test_every_fault_is_hunted_in_one_way():
    assert sorted([*SCHEDULE_FAULTS, *LAW_FAULTS, *PROPERTY_FAULTS]) == sorted(FAULTS)
    assert {FAULTS[name].area for name in LAW_FAULTS} == {Area.LAW}
    of_schedules = {Area.SPECULATIVE, Area.DRAFTING}
    assert of_schedules <= {FAULTS[name].area for name in SCHEDULE_FAULTS}
    assert not of_schedules & {FAULTS[name].area for name in PROPERTY_FAULTS}


def test_no_fault_of_a_module_is_left_out():
    """A second fault of one name would silently take the place of the first."""
    modules = [import_module(f"oracle.faults.{module.name}") for module in iter_modules(oracle.faults.__path__)]
    names = [fault.name for module in modules for fault in getattr(module, "FAULTS", ())]
    assert sorted(names) == sorted(FAULTS)
    none = [fault.name for module in modules for fault in getattr(module, "NO_OPS", ())]
    assert sorted(none) == sorted(NO_OP_FAULTS)
    defined = [value for module in modules for value in vars(module).values() if isinstance(value, Fault)]
    assert sorted(fault.name for fault in defined) == sorted(SWITCHES)


def test_function_becomes_a_fault_with_one_replacement():
    facts = Facts(models=None, component=("numerics/plain.py",), needs=(), seen_by=("greedy",))

    @one_replacement("upside_down", Area.MODEL, "all is upside down", PlainNumerics, "silu", **facts)
    def upside_down(inputs):
        return -inputs

    assert isinstance(upside_down, Fault)
    assert (upside_down.name, upside_down.area) == ("upside_down", Area.MODEL)
    assert (upside_down.component, upside_down.seen_by) == (("numerics/plain.py",), ("greedy",))
    (replacement,) = upside_down.replacements
    assert (replacement.owner, replacement.attribute) == (PlainNumerics, "silu")
    assert replacement.value(1) == -1


def test_catch_tells_the_size_of_its_case():
    catch = Catch(NO_OP, "order", "static", 1, "wrong", BUSY)
    assert catch.size == "5 requests, 38 + 25 tokens"
    assert replace(catch, scenario=None).size == "the whole run"
