"""Attention of one layer: what its view is handed, and what becomes of the answer."""

import torch

from refinfer.interfaces import AttentionView


class RecordingView:
    """Keeps what it is handed, and answers with the queries."""

    def __init__(self):
        self.calls = []

    def attend(self, layer_index, queries, keys, values, attention):
        self.calls.append((layer_index, queries, keys, values, attention))
        return queries


def run_attention(model, layer_index, view):
    """Runs one layer's attention on fixed hidden states; gives them, the tables and the output."""
    hidden_states = torch.linspace(-1, 1, 36, dtype=torch.float64).reshape(3, 12)
    cos, sin = model.get_submodule("model.rotary_emb")(torch.tensor([5, 6, 7]))
    attention = model.get_submodule(f"model.layers.{layer_index}.self_attn")
    return attention, hidden_states, (cos, sin), attention(hidden_states, cos, sin, view)


def test_attention_hands_its_view_rotated_queries_and_keys_and_plain_values(model_by_dtype):
    model, view = model_by_dtype["float64"], RecordingView()
    assert isinstance(view, AttentionView)
    attention, hidden_states, tables, _ = run_attention(model, 1, view)
    ((layer_index, queries, keys, values, core),) = view.calls
    assert layer_index == 1
    assert core == model.numerics.attention
    projected = {
        name: (hidden_states @ attention.get_parameter(f"{name}_proj.weight").T).unflatten(-1, (-1, 6))
        for name in "qkv"
    }
    torch.testing.assert_close(queries, model.numerics.rotate(projected["q"], *tables))
    torch.testing.assert_close(keys, model.numerics.rotate(projected["k"], *tables))
    torch.testing.assert_close(values, projected["v"])
    assert (queries.shape, keys.shape) == ((3, 4, 6), (3, 2, 6))


def test_attention_projects_heads_side_by_side(model_by_dtype):
    model, view = model_by_dtype["float64"], RecordingView()
    attention, _, _, output = run_attention(model, 0, view)
    per_head_output = view.calls[0][1]
    expected = per_head_output.reshape(3, 24) @ attention.get_parameter("o_proj.weight").T
    torch.testing.assert_close(output, expected)


def test_hooks_see_rotated_vectors_and_per_head_output(model_by_dtype):
    """Tools that look for the first divergence read these two modules by name."""
    model, seen = model_by_dtype["float64"], {}
    names = ["model.layers.0.self_attn.rope", "model.layers.0.self_attn.core"]
    handles = [
        model.get_submodule(name).register_forward_hook(lambda _, __, output, name=name: seen.update({name: output}))
        for name in names
    ]
    view = RecordingView()
    run_attention(model, 0, view)
    for handle in handles:
        handle.remove()
    assert torch.equal(seen[names[0]][0], view.calls[0][1])
    assert torch.equal(seen[names[0]][1], view.calls[0][2])
    assert torch.equal(seen[names[1]], view.calls[0][1])
