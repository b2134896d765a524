import torch

from oracle.explain.comparing import differences, first_off, layer_of, num_comparable, num_shared, shown_name
from oracle.explain.lone_pass import LonePass
from oracle.explain.recording import RowRecord


def test_first_off_names_the_first_row_over_the_bound():
    own = torch.tensor([[0.0], [0.1], [0.5]])
    assert first_off(differences(own, torch.zeros(3, 1)), 0.2) == (2, 0.5)
    assert first_off(differences(own, torch.zeros(3, 1)), 1.0)[0] is None


def test_first_off_sees_what_is_no_number():
    place, largest = first_off(differences(torch.tensor([[0.0], [float("nan")]]), torch.zeros(2, 1)), 1e9)
    assert place == 1
    assert largest != largest  # noqa: PLR0124 - only NaN differs from itself


def test_first_off_of_nothing_is_none():
    assert first_off(differences(torch.zeros(0, 3), torch.zeros(0, 3)), 0.0) == (None, 0.0)


def test_only_tokens_with_the_same_ones_before_them_can_be_compared():
    lone = LonePass((1, 2, 3, 4), {}, {})
    assert num_comparable(RowRecord(0, 0, 0, 1, (1, 2, 3, 9)), lone) == 2
    assert num_comparable(RowRecord(0, 0, 0, 3, (1, 9, 3, 4)), lone) == 0
    assert num_shared((1, 2), (1, 2, 3)) == 2


def test_names_are_those_of_activations():
    assert shown_name("model.layers.0.self_attn.rope[1]") == "model.layers.0.self_attn.rotated_keys"
    assert shown_name("model.norm") == "model.norm"
    assert (layer_of("model.layers.3.mlp"), layer_of("model.norm")) == (3, None)
