"""A walk stops at what differs first: the earliest step, then the earliest module, and hears the witness on it."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from oracle.activations import canonical_names
from oracle.case import Case
from oracle.checkpoints import CheckpointSpec
from oracle.expectation import Expectation, Oracles
from oracle.localise import ALONE, CHUNKED, WAYS, Culprit, walk, walk_scenario
from oracle.passes import Part, alone_passes
from oracle.scenario import RequestSpec, Scenario
from oracle.strategies import scenarios
from oracle.subjects import MODES
from refinfer import load_model

pytestmark = pytest.mark.without_shape_checks

SCENARIO = Scenario(
    requests=(
        RequestSpec((40,), max_tokens=2, ignore_eos=True),
        RequestSpec((2, 3, 4, 5, 6), max_tokens=4, ignore_eos=True, cuts=(2,)),
        RequestSpec((70, 71), max_tokens=3, ignore_eos=True),
    ),
    max_num_seqs=2,
    checkpoint=CheckpointSpec(num_layers=1),
)
NAMES = ("first", "second", "third")
FEW = settings(deadline=None, max_examples=max(5, settings().max_examples // 5))


@pytest.fixture(scope="module")
def case():
    return Case(SCENARIO)


@pytest.fixture
def expectation():
    """Three names, four positions; the reference is a little off the witness."""
    generator = np.random.default_rng(0)
    witness = {name: generator.normal(size=(4, 3)) for name in NAMES}
    reference = {name: rows + 1e-6 for name, rows in witness.items()}
    return Expectation(reference, witness, dict.fromkeys(NAMES, 1e-5), is_judged_by_witness=False)


def part_of(expectation, positions, *, request_index=0, off_by_name=None):
    """What a right subject shows at some positions, with something added to the last of them under a name."""
    activations = {}
    for name, rows in expectation.reference.items():
        own = torch.from_numpy(rows[positions.start : positions.stop].copy())
        own[-1, 0] += (off_by_name or {}).get(name, 0.0)
        activations[name] = own
    return Part(request_index, positions, activations)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
@pytest.mark.parametrize("way", WAYS)
def test_nothing_differs_where_nothing_is_wrong(case, way, dtype):
    scenario = replace(SCENARIO, dtype=dtype)
    found = walk_scenario(scenario, case.folder, way, Oracles(case.folder, dtype))
    assert found.finding is None
    assert str(found).startswith("nothing differs in")
    assert all(line.position is None for line in found.lines)


@FEW
@given(scenario=scenarios(), way=st.sampled_from(WAYS))
def test_nothing_differs_on_generated_scenarios(scenario, way):
    case = Case(scenario)
    assert walk_scenario(scenario, case.folder, way, Oracles(case.folder, scenario.dtype)).finding is None


@pytest.mark.parametrize("name", canonical_names(1)[:-1])
def test_a_module_that_is_off_is_named_whichever_it_is(case, name):
    """The difference is put into the subject's records, so that no later module inherits it."""
    model = load_model(case.folder, batch_invariant=False)
    token_ids = SCENARIO.requests[1].prompt_token_ids
    ((part,),) = alone_passes(model, [token_ids])
    part.activations[name][3] += 1e-3
    expectations = Oracles(case.folder, "float32").expect([token_ids])
    found = walk([[part]], expectations, is_bitwise=True)
    assert found.finding is not None
    assert (found.finding.divergence.name, found.finding.divergence.position) == (name, 3)
    assert found.finding.culprit is Culprit.SUBJECT


def test_walk_stops_at_the_earliest_step(expectation):
    def passes():
        yield [part_of(expectation, range(2))]
        yield [part_of(expectation, range(2, 3), off_by_name={"third": 1.0})]
        pytest.fail("the walk went on")

    found = walk(passes(), [expectation], is_bitwise=False)
    assert found.finding is not None
    assert (found.step, found.finding.divergence.name, found.finding.divergence.position) == (1, "third", 2)
    assert found.finding.divergence.last_agreeing == "second"


def test_of_the_requests_of_a_step_the_earliest_module_counts(expectation):
    parts = [
        part_of(expectation, range(4), off_by_name={"third": 1.0}),
        part_of(expectation, range(4), request_index=1, off_by_name={"second": 1.0, "third": 1.0}),
    ]
    found = walk([parts], [expectation, expectation], is_bitwise=False)
    assert found.finding is not None
    assert (found.request_index, found.finding.divergence.name) == (1, "second")
    assert str(found).startswith("step 0, request 1: first divergence at second, position 3: 1 off")


def test_activations_of_the_last_positions_alone_are_held_against_those(expectation):
    part = part_of(expectation, range(1, 4), off_by_name={"third": 1.0})
    part.activations["third"] = part.activations["third"][-1:]
    found = walk([[part]], [expectation], is_bitwise=False)
    assert found.finding is not None
    assert (found.finding.divergence.name, found.finding.divergence.position) == ("third", 3)


@pytest.mark.parametrize(("is_bitwise", "differs"), [(True, True), (False, False)])
def test_rounding_is_permitted_unless_bits_are_asked_for(expectation, is_bitwise, differs):
    part = part_of(expectation, range(4), off_by_name={"second": 2e-6})
    found = walk([[part]], [expectation], is_bitwise=is_bitwise)
    assert (found.finding is not None) == differs
    if found.finding is not None:
        assert found.finding.culprit is Culprit.NOBODY


def test_bits_are_never_asked_for_where_the_witness_judges(expectation):
    judged = replace(expectation, is_judged_by_witness=True)
    assert walk([[part_of(expectation, range(4))]], [judged], is_bitwise=True).finding is None


def test_the_bound_does_not_shrink_with_the_step(expectation):
    """Noise was measured over the whole request; a step of one small token may be off as far."""
    small = replace(expectation, reference={name: rows * 1e-3 for name, rows in expectation.reference.items()})
    part = part_of(small, range(1), off_by_name={"second": 9e-6})
    assert walk([[part]], [small], is_bitwise=False).finding is None


def test_the_witness_tells_that_the_reference_is_off(expectation):
    wrong = replace(expectation, reference={**expectation.reference, "second": expectation.witness["second"] + 1.0})
    part = part_of(wrong, range(4))
    part.activations["second"] = torch.from_numpy(expectation.witness["second"] + 1e-4)
    found = walk([[part]], [wrong], is_bitwise=False)
    assert found.finding is not None
    assert found.finding.culprit is Culprit.REFERENCE


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_value_that_is_not_finite_is_the_subjects(expectation, value):
    found = walk([[part_of(expectation, range(4), off_by_name={"first": value})]], [expectation], is_bitwise=False)
    assert found.finding is not None
    assert (found.finding.divergence.name, found.finding.divergence.position) == ("first", 3)
    assert found.finding.culprit is Culprit.SUBJECT


def test_values_are_those_of_the_element_that_differs_most(expectation):
    found = walk([[part_of(expectation, range(4), off_by_name={"second": 5.0})]], [expectation], is_bitwise=False)
    assert found.finding is not None
    own, reference, witness = found.finding.values
    assert reference == expectation.reference["second"][3, 0]
    assert own - reference == pytest.approx(5.0)
    assert reference - witness == pytest.approx(1e-6)


def test_a_walk_has_figures_for_every_name(expectation):
    found = walk([[part_of(expectation, range(4), off_by_name={"second": 5.0})]], [expectation], is_bitwise=False)
    assert [line.name for line in found.lines] == list(NAMES)
    assert [line.position for line in found.lines] == [None, 3, None]
    assert found.lines[1].from_reference == pytest.approx(5.0)
    assert found.lines[1].from_witness == pytest.approx(5.0 + 1e-6)
    assert found.lines[1].between_oracles == pytest.approx(1e-6)


def test_ways_begin_with_the_simplest():
    assert WAYS[:2] == (ALONE, CHUNKED)
    assert WAYS[2:] == MODES
