"""The collector: what it records, that it leaves no trace, and that names line up."""

import pytest
import torch
from torch import nn

from oracle.activations import ActivationCollector, canonical_names, collect_refinfer
from oracle.errors import ScenarioError
from oracle.reference import Reference
from refinfer import load_model
from refinfer.cache import CausalAttentionView

TOKEN_IDS = [3, 1, 4, 1, 5, 9, 2, 6, 0]


class Pair(nn.Module):
    """Gives a tuple that holds something else as well."""

    def forward(self, inputs):
        return inputs + 1, None, inputs + 2


@pytest.fixture
def tree():
    return nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.ReLU(inplace=True), Pair()))


def num_hooks(module):
    return sum(len(part._forward_hooks) + len(part._forward_pre_hooks) for part in module.modules())


def test_collector_records_outputs_by_module_path_in_order_of_execution(tree):
    with ActivationCollector(tree) as collector:
        first, _, last = tree(torch.ones(2, 3))
    assert list(collector.records) == ["0", "1.0", "1.1[0]", "1.1[2]", "1[0]", "1[2]", "[0]", "[2]"]
    assert torch.equal(collector.records["1.1[0]"], first)
    assert torch.equal(collector.records["[2]"], last)


def test_collector_keeps_what_a_later_module_overwrites(tree):
    """The rectifier works in place, on the very tensor that the linear layer gave."""
    inputs = torch.randn(2, 3)
    with ActivationCollector(tree) as collector:
        tree(inputs)
    assert torch.equal(collector.records["0"], tree[0](inputs))
    assert (collector.records["0"] < 0).any()


def test_collector_records_are_detached(tree):
    with ActivationCollector(tree) as collector:
        tree(torch.ones(2, 3))
    assert not any(record.requires_grad for record in collector.records.values())


def test_collector_keeps_the_last_of_several_calls_in_its_later_place():
    shared = nn.Linear(3, 3)
    tree = nn.Sequential(shared, nn.ReLU(), shared)
    with ActivationCollector(tree) as collector:
        output = tree(torch.ones(2, 3))
    assert list(collector.records) == ["1", "0", ""]
    assert torch.equal(collector.records["0"], output)


def test_collector_records_inputs_that_are_named(tree):
    inputs = torch.ones(2, 3)
    with ActivationCollector(tree, input_paths=["0"]) as collector:
        tree(inputs)
    assert torch.equal(collector.records["0.input"], inputs)
    assert "1.input" not in collector.records


def test_collector_refuses_the_input_of_a_module_that_is_not_there(tree):
    with pytest.raises(ScenarioError, match="no module at '7'"), ActivationCollector(tree, input_paths=["0", "7"]):
        pass
    assert num_hooks(tree) == 0


def test_collector_leaves_no_hook_behind_when_the_run_fails(tree):
    with pytest.raises(RuntimeError, match="shapes"), ActivationCollector(tree, input_paths=["0"]):
        tree(torch.ones(2, 5))
    assert num_hooks(tree) == 0


def test_collector_records_nothing_after_its_context(tree):
    with ActivationCollector(tree) as collector:
        pass
    tree(torch.ones(2, 3))
    assert not collector.records


def test_collecting_does_not_change_logits(llama_folder):
    model = load_model(llama_folder)
    logits = model(torch.tensor(TOKEN_IDS), torch.arange(9), CausalAttentionView([9]))
    assert torch.equal(collect_refinfer(model, TOKEN_IDS)["lm_head"], logits)


def test_refinfer_activations_have_the_canonical_names_in_order(llama_folder):
    activations = collect_refinfer(load_model(llama_folder, batch_invariant=False), TOKEN_IDS)
    assert tuple(activations) == canonical_names(num_layers=3)


def test_refinfer_and_reference_activations_have_the_same_bits_under_each_name(llama_folder):
    own = collect_refinfer(load_model(llama_folder, batch_invariant=False), TOKEN_IDS)
    reference = Reference.open(llama_folder).activations(TOKEN_IDS)
    assert list(own) == list(reference)
    assert [name for name in own if not torch.equal(own[name], reference[name])] == []
