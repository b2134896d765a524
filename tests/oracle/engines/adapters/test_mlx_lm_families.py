import pytest

from oracle.contract.constructions import is_excluded, shapes_in_turn
from oracle.engines.adapters.mlx_lm_families import CONFIGS, FAMILIES, exclusions_of_families
from oracle.engines.adapters.mlx_lm_settings import declaration_of
from oracle.family_shapes import family_of, options_of


@pytest.mark.parametrize("family", ["mamba", "jamba", "falcon_h1", "granitemoehybrid", "recurrent_gemma"])
def test_guesses_are_excluded_for_a_state_that_cannot_be_taken_back(family):
    assert {"way": "speculative", "family": family} in exclusions_of_families()


def test_exclusions_name_families_and_variants_that_there_are():
    shapes = [excluded["family"] for excluded in exclusions_of_families()]
    assert all(options_of(shape) is not None for shape in shapes)
    assert {family_of(shape) for shape in shapes} <= {family_of(shape) for shape in FAMILIES}


def test_each_family_is_opened_in_some_way():
    declaration = declaration_of("")
    for shape in FAMILIES:
        knobs = {"config": CONFIGS[0], "way": "single", "family": shape}
        assert not is_excluded(declaration, knobs), shape


def test_variants_that_are_refused_are_excluded_in_every_way():
    declaration = declaration_of("")
    refused = {
        shape
        for shape in shapes_in_turn(FAMILIES)
        if all(is_excluded(declaration, {"config": config, "family": shape}) for config in CONFIGS)
    }
    assert "qwen3:biased" in refused
    assert len(refused) == 5
