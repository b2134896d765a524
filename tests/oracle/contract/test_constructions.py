"""Every legal pair of settings comes up, and none that an engine excludes."""

from itertools import combinations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracle.contract.constructions import (
    Construction,
    constructions,
    covering_array,
    is_excluded,
    num_pairs,
    shapes_in_turn,
)
from oracle.engines.declaration import EngineDeclaration

pytestmark = pytest.mark.without_shape_checks


def pairs_of(rows):
    return {pair for row in rows for pair in combinations(sorted(row.items()), 2)}


def values_of(rows):
    return {entry for row in rows for entry in row.items()}


def all_legal_rows(declaration):
    rows = (dict(zip(declaration.knobs, values, strict=True)) for values in product(*declaration.knobs.values()))
    return [row for row in rows if not is_excluded(declaration, row)]


@st.composite
def declarations(draw):
    sizes = draw(st.lists(st.integers(1, 4), max_size=4))
    knobs = {f"knob{place}": list(range(size)) for place, size in enumerate(sizes)}
    values = [st.fixed_dictionaries({}, optional={name: st.sampled_from(its) for name, its in knobs.items()})]
    excluded = draw(st.lists(st.one_of(values).filter(bool), max_size=3)) if knobs else []
    return EngineDeclaration("engine", knobs=knobs, excluded_knobs=tuple(excluded))


@settings(max_examples=20)
@given(declaration=declarations())
def test_array_has_every_legal_pair_and_no_row_that_is_excluded(declaration):
    rows, legal = covering_array(declaration), all_legal_rows(declaration)
    assert all(row in legal for row in rows)
    assert pairs_of(rows) == pairs_of(legal)
    assert values_of(rows) == values_of(legal)
    assert num_pairs(rows) == len(pairs_of(legal))


def test_regression_array_leaves_out_no_pair_of_what_is_seldom_legal():
    """The generator of arrays alone left out four pairs here."""
    knobs = {"a": [0, 1, 2], "b": [0, 1, 2, 3], "c": [0, 1, 2, 3]}
    declaration = EngineDeclaration("engine", knobs=knobs, excluded_knobs=({"c": 1, "a": 1}, {"c": 0}))
    assert pairs_of(covering_array(declaration)) == pairs_of(all_legal_rows(declaration))


@pytest.mark.parametrize(
    "knobs",
    [{}, {"a": [1]}, {"a": [1, 2, 3]}, {"a": [1], "b": [2, 3]}, {"a": [1, 2], "b": [3, 4], "c": [5, 6, 7]}],
    ids=["none", "one value", "one knob", "one fixed", "three"],
)
def test_array_begins_with_the_simplest_values(knobs):
    rows = covering_array(EngineDeclaration("engine", knobs=knobs))
    assert rows[0] == {name: values[0] for name, values in knobs.items()}
    assert len(rows) == len({tuple(sorted(row.items())) for row in rows})


def test_array_of_pairs_is_smaller_than_all_combinations():
    knobs = {f"knob{place}": [0, 1, 2] for place in range(6)}
    assert len(covering_array(EngineDeclaration("engine", knobs=knobs))) < 25 < 3**6


def test_array_has_no_simplest_row_where_that_is_excluded():
    declaration = EngineDeclaration("engine", knobs={"a": [0, 1], "b": [0, 1]}, excluded_knobs=({"a": 0, "b": 0},))
    assert {tuple(row.values()) for row in covering_array(declaration)} == {(0, 1), (1, 0), (1, 1)}


@pytest.mark.parametrize(
    ("values", "answer"),
    [({"a": 1, "b": 2}, True), ({"a": 1, "b": 3}, False), ({"a": 1}, False), ({"a": 1, "b": 2, "c": 0}, True)],
)
def test_combination_is_excluded_only_in_full(values, answer):
    assert is_excluded(EngineDeclaration("engine", excluded_knobs=({"a": 1, "b": 2},)), values) is answer


@pytest.mark.parametrize(
    ("num_values", "num_families"), [(1, 1), (3, 1), (1, 3), (3, 3), (4, 6), (6, 4), (2, 4), (3, 2)]
)
def test_each_row_meets_each_family(num_values, num_families):
    """Counting both on by one would never bring some of them together where their numbers have a common divisor."""
    declaration = EngineDeclaration("engine", knobs={"a": list(range(num_values))})
    families = [f"family{place}" for place in range(num_families)]
    found = constructions(declaration, families, num_values * num_families)
    met = {(each.knobs["a"], each.family) for each in found}
    assert met == set(product(range(num_values), families))


def test_first_constructions_take_all_families_in_turn():
    declaration = EngineDeclaration("engine", knobs={"a": [0, 1]})
    found = constructions(declaration, ["x", "y", "z"], 3)
    assert found == [Construction({"a": 0}, "x"), Construction({"a": 1}, "y"), Construction({"a": 0}, "z")]


def test_another_seed_goes_on_where_the_one_before_it_ended():
    declaration = EngineDeclaration("engine", knobs={"a": [0, 1]})
    both = constructions(declaration, ["x", "y", "z"], 6)
    assert constructions(declaration, ["x", "y", "z"], 3, seed=1) == both[3:]


def test_usual_shapes_come_before_variants():
    shapes = shapes_in_turn(["phi", "mamba", "gpt_neo"])
    assert shapes == ["phi", "mamba", "gpt_neo", "phi:normed-queries", "mamba:biased", "mamba:unbiased-convolution"]
    assert shapes_in_turn([""]) == [""]


@pytest.mark.parametrize(
    ("family", "answer"), [("phi", True), ("phi:normed-queries", True), ("phi3", False), ("phi3:tied", False)]
)
def test_excluded_family_stands_for_its_variants(family, answer):
    declaration = EngineDeclaration("engine", excluded_knobs=({"family": "phi"},))
    assert is_excluded(declaration, {"family": family}) is answer


def test_excluded_variant_leaves_its_family():
    declaration = EngineDeclaration("engine", excluded_knobs=({"family": "phi:normed-queries"},))
    assert not is_excluded(declaration, {"family": "phi"})


def test_constructions_leave_out_families_that_a_setting_excludes():
    declaration = EngineDeclaration("engine", knobs={"a": [0, 1]}, excluded_knobs=({"a": 1, "family": "x"},))
    found = constructions(declaration, ["x", "y"], 6)
    assert len(found) == 6
    assert {(each.knobs["a"], each.family) for each in found} == {(0, "x"), (0, "y"), (1, "y")}


def test_engine_without_settings_is_opened_as_it_is():
    assert constructions(EngineDeclaration("engine"), ["x"], 2) == [Construction({}, "x")] * 2


def test_number_of_pairs_counts_values_that_look_alike_apart():
    assert num_pairs([{"a": 1, "b": "1"}, {"a": "1", "b": "1"}]) == 2
