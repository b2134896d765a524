from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from transformers import LlamaForCausalLM
from transformers.models.llama import modeling_llama

from oracle.checkpoints import CheckpointSpec, write_checkpoint
from oracle.errors import InsensitiveModelError
from oracle.reference import Reference
from oracle.sensitivity import insensitive_spec, measure_sensitivity, require_sensitive
from oracle.strategies import checkpoint_specs

pytestmark = pytest.mark.without_shape_checks

VOCAB_SIZE = 131


def scores(best):
    """Logits whose largest value stands at one id for each position."""
    return np.eye(VOCAB_SIZE)[np.asarray(best)]


def context_decides(token_ids):
    return scores([sum((i + 2) * token for i, token in enumerate(token_ids[: n + 1])) % VOCAB_SIZE for n in range(24)])


def repeats_its_input(token_ids):
    return scores(token_ids)


def sees_the_last_token_only(token_ids):
    return scores([(token + 1) % VOCAB_SIZE for token in token_ids])


def forgets_early_tokens(token_ids):
    return scores([sum(token_ids[max(0, n - 2) : n + 1]) % VOCAB_SIZE for n in range(len(token_ids))])


def test_model_whose_whole_context_decides_is_sensitive():
    found = require_sensitive(context_decides, VOCAB_SIZE)
    assert found.input_share < 0.05
    assert found.context_share > 0.9
    assert found.early_share > 0.9


@pytest.mark.parametrize(
    ("logits", "share"),
    [
        (repeats_its_input, "input_share"),
        (sees_the_last_token_only, "context_share"),
        (forgets_early_tokens, "early_share"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_guard_refuses_a_model_that_ignores_its_context(logits, share):
    with pytest.raises(InsensitiveModelError, match="faults would not show") as caught:
        require_sensitive(logits, VOCAB_SIZE)
    bad = getattr(caught.value.values["sensitivity"], share)
    assert bad == (1.0 if share == "input_share" else 0.0)


def test_guard_trips_on_the_usual_initialisation(tmp_path):
    spec = insensitive_spec()
    reference = Reference.open(write_checkpoint(spec, tmp_path))
    with pytest.raises(InsensitiveModelError):
        require_sensitive(reference.logits, spec.vocab_size)


@pytest.mark.parametrize("is_tied", [False, True])
def test_default_checkpoint_is_sensitive(tmp_path, is_tied):
    spec = replace(CheckpointSpec(), tie_word_embeddings=is_tied)
    reference = Reference.open(write_checkpoint(spec, tmp_path))
    require_sensitive(reference.logits, spec.vocab_size)


@settings(max_examples=6, deadline=None)
@given(spec=checkpoint_specs())
def test_generated_checkpoints_do_not_repeat_their_input(tmp_path_factory, spec):
    reference = Reference.open(write_checkpoint(spec, tmp_path_factory.mktemp("checkpoint")))
    found = measure_sensitivity(reference.logits, spec.vocab_size)
    assert found.input_share <= 0.05, found
    assert found.early_share >= 0.2, found


def random_spec(seed):
    """Any shape that the harness may be given, not only those that its strategy draws."""
    choice = np.random.Generator(np.random.Philox(key=seed)).choice
    num_heads, num_kv_heads = choice([(1, 1), (2, 2), (2, 1), (4, 4), (4, 2), (4, 1)])
    values: dict[str, Any] = {
        "num_heads": num_heads,
        "num_kv_heads": num_kv_heads,
        "hidden_size": choice([32, 48, 64, 100, 128]),
        "intermediate_size": choice([48, 64, 112, 172]),
        "num_layers": choice([1, 2, 3, 4]),
        "head_dim": choice([8, 16, 20, 24]),
        "vocab_size": choice([97, 131, 259]),
        "rope_type": choice(["default", "linear", "llama3"]),
        "rope_theta": choice([10000.0, 500000.0]),
        "rope_factor": choice([4.0, 32.0]),
        "norm_eps": choice([1e-5, 1e-6]),
        "tie_word_embeddings": choice([False, True]),
        "attention_bias": choice([False, True]),
        "mlp_bias": choice([False, True]),
        "num_tied_rows": choice([0, 16]),
    }
    return CheckpointSpec(seed=seed, **{name: value.item() for name, value in values.items()})


@pytest.mark.parametrize("seed", range(30))
def test_sensitive_checkpoints_pass_the_guard(tmp_path, seed):
    spec = random_spec(seed)
    require_sensitive(Reference.open(write_checkpoint(spec, tmp_path)).logits, spec.vocab_size)


META_SPECS = [
    CheckpointSpec(seed=0, rope_type="llama3", num_heads=4, num_kv_heads=2, num_layers=3),
    CheckpointSpec(seed=1, rope_type="llama3", num_heads=4, num_kv_heads=2, tie_word_embeddings=True, head_dim=20),
    CheckpointSpec(seed=2, rope_type="linear", num_heads=4, num_kv_heads=2, attention_bias=True, hidden_size=100),
    CheckpointSpec(seed=3, rope_type="linear", num_heads=4, num_kv_heads=2, num_layers=4, head_dim=8),
]


def causal(length, *, seen_ahead=0):
    return torch.ones(length, length, dtype=torch.bool).tril(seen_ahead)


def greedy(model, prompts, mask=causal):
    """Continues all prompts by 8 tokens; gives the tokens, and the logits of the prompts."""
    token_ids, prompt_logits = prompts, None
    with torch.no_grad():
        for _ in range(8):
            unseen = ~mask(token_ids.shape[1])
            bias = torch.zeros(unseen.shape).masked_fill(unseen, -torch.inf)
            logits = model(token_ids, attention_mask=bias[None, None], use_cache=False).logits
            prompt_logits = logits if prompt_logits is None else prompt_logits
            token_ids = torch.cat([token_ids, logits[:, -1].argmax(-1, keepdim=True)], dim=1)
    return token_ids, prompt_logits


def rotate_neighbours(queries, keys, cos, sin, **_):
    cos, sin = (table[..., : table.shape[-1] // 2].repeat_interleave(2, -1).unsqueeze(1) for table in (cos, sin))

    def rotated(x):
        return x * cos + torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2) * sin

    return rotated(queries), rotated(keys)


def repeat_all_heads(states, count):
    return states.repeat(1, count, 1, 1)


def forget_rope_scaling(model):
    frequencies = model.model.rotary_emb.inv_freq
    steps = torch.arange(0, 2 * len(frequencies), 2) / (2 * len(frequencies))
    frequencies.copy_(1.0 / model.config.rope_parameters["rope_theta"] ** steps)


def forget_score_scale(model):
    for layer in model.model.layers:
        layer.self_attn.scaling = 1.0


def swap_epsilons(model):
    for module in model.modules():
        if isinstance(module, modeling_llama.LlamaRMSNorm):
            module.variance_epsilon = 1e-6


@pytest.fixture(scope="module")
def greedy_runs(tmp_path_factory):
    """For each of the meta specs: its folder, prompts, and what the right model makes of them."""
    runs = []
    for spec in META_SPECS:
        folder = write_checkpoint(spec, tmp_path_factory.mktemp("meta"))
        draws = np.random.Generator(np.random.Philox(key=spec.seed))
        prompts = torch.from_numpy(draws.integers(0, spec.vocab_size, (16, 24)))
        runs.append((folder, prompts, *greedy(open_eager(folder), prompts)))
    return runs


def open_eager(folder):
    """The reference's attention that reads each of the places which faults are planted in."""
    model: Any = LlamaForCausalLM.from_pretrained(folder, attn_implementation="eager")
    return model.eval()


@pytest.mark.parametrize(
    ("patched", "replacement"),
    [("apply_rotary_pos_emb", rotate_neighbours), ("repeat_kv", repeat_all_heads)],
)
def test_fault_in_a_function_changes_greedy_tokens_of_most_prompts(greedy_runs, monkeypatch, patched, replacement):
    monkeypatch.setattr(modeling_llama, patched, replacement)
    for folder, prompts, right, _ in greedy_runs:
        wrong, _ = greedy(open_eager(folder), prompts)
        assert (wrong != right).any(dim=1).float().mean() > 0.5


@pytest.mark.parametrize("plant", [forget_rope_scaling, forget_score_scale])
def test_fault_in_a_setting_changes_greedy_tokens_of_most_prompts(greedy_runs, plant):
    for folder, prompts, right, _ in greedy_runs:
        model = open_eager(folder)
        plant(model)
        wrong, _ = greedy(model, prompts)
        assert (wrong != right).any(dim=1).float().mean() > 0.5


@pytest.mark.parametrize("seen_ahead", [1, -1], ids=["sees the next token", "does not see itself"])
def test_fault_in_the_mask_changes_greedy_tokens_of_most_prompts(greedy_runs, seen_ahead):
    def shifted(length):
        mask = causal(length, seen_ahead=seen_ahead)
        mask[0, 0] = True  # a query that sees nothing would give NaN
        return mask

    for folder, prompts, right, _ in greedy_runs:
        wrong, _ = greedy(open_eager(folder), prompts, shifted)
        assert (wrong != right).any(dim=1).float().mean() > 0.5


def test_fault_in_the_epsilon_moves_logits_beyond_rounding(greedy_runs):
    """It is too small to change most tokens, so this is what must show instead."""
    for folder, prompts, _, right in greedy_runs:
        model = open_eager(folder)
        swap_epsilons(model)
        _, wrong = greedy(model, prompts)
        assert (wrong - right).abs().amax(dim=(1, 2)).min() > 1e-3
