"""Names of shapes: a family, or a variant of one."""

import pytest

from oracle.family_shapes import COMMON, FAMILIES, VARIANTS, family_of, options_of, shapes_of


def test_shapes_of_a_family_begin_with_the_usual_one():
    assert shapes_of("phi") == ("phi", "phi:normed-queries")
    assert shapes_of("mamba")[0] == "mamba"
    assert {family_of(shape) for shape in shapes_of("llama")} == {"llama"}


def test_shape_that_is_a_variant_is_itself_alone():
    assert shapes_of("llama:tied") == ("llama:tied",)


def test_variants_are_of_known_families():
    assert set(VARIANTS) <= set(FAMILIES)


def test_options_of_a_variant_go_before_those_of_its_family():
    options = options_of("mistral:no-window")
    assert FAMILIES["mistral"]["sliding_window"] == 12
    assert options is not None
    assert options["sliding_window"] is None


@pytest.mark.parametrize("shape", ["lama", "llama:odd", "lama:tied", ""])
def test_unknown_shapes_have_no_options(shape):
    assert options_of(shape) is None


def test_common_widths_make_groups_of_query_heads():
    assert COMMON["num_attention_heads"] % COMMON["num_key_value_heads"] == 0
