"""A shape for caches, vectors that say whose they are, and an attention core that only looks."""

from types import SimpleNamespace

import pytest
import torch

from refinfer.config import ModelConfig, RopeConfig

NUM_LAYERS, NUM_HEADS, NUM_KV_HEADS, HEAD_DIM = 2, 4, 2, 3


def vectors(names, layer_index, num_heads, kind):
    """For each name a vector for each head, in which no two numbers are the same: exact in float64."""
    heads = torch.arange(num_heads, dtype=torch.float64)[:, None] * 10 + torch.arange(HEAD_DIM, dtype=torch.float64)
    base = torch.tensor(names, dtype=torch.float64)[:, None, None] * 1000
    return base + 100 * layer_index + heads + {"query": 0.25, "key": 0.5, "value": 0.75}[kind]


class Probe:
    """Stands for the attention core: keeps what it is given, and answers with the negated queries."""

    def __init__(self):
        self.calls = []

    def __call__(self, queries, keys, values, layout):
        self.calls.append(SimpleNamespace(queries=queries, keys=keys.clone(), values=values.clone(), layout=layout))
        return -queries


def rows_by_request(view, calls):
    """What each request's queries, keys and values were, wherever in which call they stood."""
    rows = [
        SimpleNamespace(
            queries=call.queries[index],
            keys=call.keys[index],
            values=call.values[index],
            num_queries=call.layout.num_queries,
            num_keys=call.layout.num_keys - num_missing,
        )
        for call in calls
        for index, num_missing in enumerate(call.layout.num_missing_tokens)
    ]
    order = getattr(view, "request_order", range(len(rows)))
    assert sorted(order) == list(range(len(rows)))
    return [rows[order.index(request)] for request in range(len(rows))]


def attend(view, names, layer_index, attention):
    """Runs named tokens through one layer of a view."""
    return view.attend(
        layer_index,
        vectors(names, layer_index, NUM_HEADS, "query"),
        vectors(names, layer_index, NUM_KV_HEADS, "key"),
        vectors(names, layer_index, NUM_KV_HEADS, "value"),
        attention,
    )


@pytest.fixture(scope="session")
def toolbox():
    """What tests of caches share."""
    return SimpleNamespace(
        config=ModelConfig(
            vocab_size=11,
            hidden_size=12,
            intermediate_size=8,
            num_layers=NUM_LAYERS,
            num_heads=NUM_HEADS,
            num_kv_heads=NUM_KV_HEADS,
            head_dim=HEAD_DIM,
            max_position_embeddings=64,
            norm_eps=1e-5,
            tie_word_embeddings=False,
            attention_bias=False,
            mlp_bias=False,
            rope=RopeConfig(),
            dtype_name=None,
        ),
        num_heads=NUM_HEADS,
        num_kv_heads=NUM_KV_HEADS,
        vectors=vectors,
        Probe=Probe,
        attend=attend,
        rows_by_request=rows_by_request,
    )
