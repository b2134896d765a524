"""The network: the reference's bits for one sequence, and the same numbers however a request is cut up."""

from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from refinfer import load_model
from refinfer.cache import CausalAttentionView, ContinuousCache
from refinfer.errors import CapacityError, EmptyPromptError, ShapeError, TokenIdError

# Sums of a few dozen terms near one err by about 1e-15; depth and softmax leave room.
FLOAT64_BOUND = 1e-11
FEW = settings(deadline=None, max_examples=max(5, settings().max_examples // 5))


@st.composite
def raw_configs(draw):
    """Shapes of every kind; the simplest draw is the smallest model."""
    num_heads = draw(st.sampled_from([1, 2, 3, 4, 6]), label="heads")
    ropes = [
        {},
        {"rope_scaling": {"type": "linear", "factor": 2.5}},
        {
            "rope_scaling": {
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
            }
        },
    ]
    flags = {name: draw(st.booleans(), label=name) for name in ("tie_word_embeddings", "attention_bias", "mlp_bias")}
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": draw(st.sampled_from([7, 16, 33, 97]), label="vocabulary"),
        "hidden_size": num_heads * draw(st.sampled_from([2, 5, 16]), label="hidden size per head"),
        "intermediate_size": draw(st.sampled_from([1, 20, 43]), label="inner width"),
        "num_hidden_layers": draw(st.sampled_from([1, 2, 3]), label="layers"),
        "num_attention_heads": num_heads,
        "num_key_value_heads": draw(st.sampled_from([n for n in (1, 2, 3, 6) if num_heads % n == 0]), label="kv heads"),
        "head_dim": 2 * draw(st.sampled_from([1, 4, 10, 32]), label="half of head_dim"),
        "max_position_embeddings": 128,
        "rms_norm_eps": draw(st.sampled_from([1e-5, 1e-6, 1e-2]), label="epsilon"),
        "rope_theta": draw(st.sampled_from([10000.0, 100.0]), label="theta"),
        **draw(st.sampled_from(ropes), label="rope"),
        **flags,
    }


@FEW
@given(raw_config=raw_configs(), length=st.sampled_from([1, 2, 3, 9, 40, 100]), seed=st.integers(0, 99))
def test_forward_matches_reference_logits_bit_for_bit(tiny, raw_config, length, seed):
    with TemporaryDirectory() as name:
        folder = tiny.write_checkpoint(Path(name), raw_config, tiny.drawn_weights(raw_config, seed))
        model, reference = load_model(folder, batch_invariant=False), tiny.open_reference(folder)
    token_ids = torch.randint(raw_config["vocab_size"], (length,), generator=torch.Generator().manual_seed(seed))
    ours = model.forward(token_ids, torch.arange(length), CausalAttentionView([length]))
    theirs = tiny.reference_logits(reference, token_ids)
    assert torch.equal(ours, theirs), f"largest difference {(ours - theirs).abs().max()}"


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_forward_of_half_precision_matches_reference_logits_bit_for_bit(tiny, folder, dtype):
    token_ids = torch.arange(20) % 23
    model = load_model(folder, dtype=dtype, batch_invariant=False)
    ours = model.forward(token_ids, torch.arange(20), CausalAttentionView([20]))
    assert torch.equal(ours, tiny.reference_logits(tiny.open_reference(folder, dtype), token_ids))


dtypes = st.sampled_from(["float32", "float64", "bfloat16", "float16"])
prompts = st.lists(st.integers(0, 22), min_size=1, max_size=12)


def forward_alone(model, token_ids):
    """Logits of every token of one request."""
    return model.forward(torch.tensor(token_ids), torch.arange(len(token_ids)), CausalAttentionView([len(token_ids)]))


def new_caches(model, count):
    return [ContinuousCache(model.config, model.dtype) for _ in range(count)]


@FEW
@given(requests=st.lists(st.tuples(prompts, st.sets(st.integers(1, 11))), min_size=1, max_size=3), dtype=dtypes)
def test_prefill_in_chunks_equals_forward_logits_bit_for_bit(model_by_dtype, requests, dtype):
    """Each request is cut at its own places; a pass holds the next chunk of every request that has one."""
    model = model_by_dtype[dtype]
    chunks = []
    for tokens, cuts in requests:
        bounds = [0, *sorted(cut for cut in cuts if cut < len(tokens)), len(tokens)]
        chunks.append([tokens[start:end] for start, end in pairwise(bounds)])
    caches = new_caches(model, len(requests))
    expected = [forward_alone(model, tokens) for tokens, _ in requests]
    for step in range(max(map(len, chunks))):
        members = [index for index, own in enumerate(chunks) if step < len(own)]
        logits = model.prefill([chunks[index][step] for index in members], [caches[index] for index in members])
        for row, index in zip(logits, members, strict=True):
            last = caches[index].num_computed_tokens - 1
            assert torch.equal(row, expected[index][last])
    assert [cache.num_computed_tokens for cache in caches] == [len(tokens) for tokens, _ in requests]


@FEW
@given(requests=st.lists(st.tuples(prompts, prompts), min_size=1, max_size=3), dtype=dtypes, data=st.data())
def test_decode_equals_forward_logits_bit_for_bit_in_any_order_of_rows(model_by_dtype, requests, dtype, data):
    model = model_by_dtype[dtype]
    caches = new_caches(model, len(requests))
    model.prefill([prompt for prompt, _ in requests], caches)
    expected = [forward_alone(model, prompt + answer) for prompt, answer in requests]
    for step in range(max(len(answer) for _, answer in requests)):
        members = [index for index, (_, answer) in enumerate(requests) if step < len(answer)]
        order = data.draw(st.permutations(members), label=f"rows of step {step}")
        logits = model.decode([requests[index][1][step] for index in order], [caches[index] for index in order])
        for row, index in zip(logits, order, strict=True):
            assert torch.equal(row, expected[index][len(requests[index][0]) + step])


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
def test_neighbours_do_not_change_a_bit_of_logits(model_by_dtype, dtype):
    model = model_by_dtype[dtype]
    requests = [[1, 2, 3, 4], [5], [0, 22, 0]]
    packed = model.forward(
        torch.tensor([token_id for tokens in requests for token_id in tokens]),
        torch.cat([torch.arange(len(tokens)) for tokens in requests]),
        CausalAttentionView([len(tokens) for tokens in requests]),
    )
    alone = torch.cat([forward_alone(model, tokens) for tokens in requests])
    assert torch.equal(packed, alone)


def test_position_ids_and_order_change_logits(model_by_dtype):
    """A model on which these do not show could not tell a wrong position from a right one."""
    model = model_by_dtype["float64"]
    expected = forward_alone(model, [1, 2, 3, 4])[-1]
    assert (forward_alone(model, [2, 1, 3, 4])[-1] - expected).abs().max() > 1e-3
    gap = model.forward(torch.tensor([1, 2, 3, 4]), torch.tensor([0, 1, 2, 5]), CausalAttentionView([4]))
    assert (gap[-1] - expected).abs().max() > 1e-3


@FEW
@given(rows=st.lists(st.integers(0, 4), max_size=7))
def test_logits_rows_gives_the_rows_that_were_asked_for_in_that_order(model_by_dtype, rows):
    model = model_by_dtype["float64"]
    inputs = torch.tensor([3, 1, 4, 1, 5]), torch.arange(5), CausalAttentionView([5])
    chosen = model.forward(*inputs, logits_rows=rows)
    assert chosen.shape == (len(rows), 23)
    torch.testing.assert_close(chosen, model.forward(*inputs)[rows], rtol=0, atol=FLOAT64_BOUND)


@pytest.mark.parametrize("rows", [[5], [-1], [0, 9]], ids=str)
def test_forward_refuses_logits_rows_that_do_not_run(model_by_dtype, rows):
    with pytest.raises(ShapeError, match=r"logits_rows .* are asked for.*rows 0 to 4"):
        model_by_dtype["float32"].forward(torch.arange(5), torch.arange(5), CausalAttentionView([5]), logits_rows=rows)


@pytest.mark.usefixtures("_without_shape_checks")
@pytest.mark.parametrize("lengths", [(0, 0), (3, 2), (2, 3), (0, 1)], ids=str)
def test_forward_refuses_inputs_of_two_lengths_and_no_tokens(model_by_dtype, lengths):
    input_ids, position_ids = map(torch.arange, lengths)
    with pytest.raises(ShapeError, match=f"{lengths[0]} token ids and {lengths[1]} position ids were given"):
        model_by_dtype["float32"].forward(input_ids, position_ids, CausalAttentionView([max(1, lengths[0])]))


@pytest.mark.parametrize("token_id", [-1, 23, 2**40])
def test_forward_refuses_a_token_id_outside_the_vocabulary(model_by_dtype, token_id):
    with pytest.raises(TokenIdError, match=rf"{token_id}.*; the vocabulary has 0 to 22"):
        forward_alone(model_by_dtype["float32"], [0, token_id])
    assert forward_alone(model_by_dtype["float32"], [0, 22]).isfinite().all()


@pytest.mark.parametrize(
    "module", ["model.embed_tokens", "model.layers.0", "model.layers.1.self_attn.core", "model.norm", "lm_head"]
)
def test_pass_that_fails_leaves_every_cache_where_it_stood(model_by_dtype, module):
    """Growth included: the chunk is longer than what is allocated."""
    model = model_by_dtype["float64"]
    caches = new_caches(model, 2)
    model.prefill([[1, 2, 3], [4]], caches)
    chunk = [[number % 23 for number in range(70)], [5, 6]]

    def fail(*_):
        message = "planted"
        raise RuntimeError(message)

    handle = model.get_submodule(module).register_forward_hook(fail)
    with pytest.raises(RuntimeError, match="planted"):
        model.prefill(chunk, caches)
    handle.remove()
    assert [cache.num_computed_tokens for cache in caches] == [3, 1]
    logits = model.prefill(chunk, caches)
    for row, tokens in zip(logits, ([1, 2, 3, *chunk[0]], [4, *chunk[1]]), strict=True):
        assert (row - forward_alone(model, tokens)[-1]).abs().max() < FLOAT64_BOUND


def assert_refused(caches, call, error, match):
    """The call raises, and the caches go on as if nobody had called."""
    before = [cache.num_computed_tokens for cache in caches]
    with pytest.raises(error, match=match):
        call()
    assert [cache.num_computed_tokens for cache in caches] == before


def test_prefill_refuses_what_does_not_fit_together_and_changes_nothing(model_by_dtype):
    model = model_by_dtype["float32"]
    first, second = caches = new_caches(model, 2)
    model.prefill([[1], [2, 3]], caches)
    for given_prompts, given_caches, error, match in (
        ([[1], [2]], [first], ShapeError, "2 prompts were given with 1 caches; each needs one of its own"),
        ([[1]], [first, second], ShapeError, "1 prompts were given with 2 caches"),
        ([[1], [2]], [first, first], ShapeError, "each needs one of its own"),
        ([], [], ShapeError, "0 token ids and 0 .* at least one"),
        ([[1], []], [first, second], EmptyPromptError, "prompt 1 has no token; give at least one"),
        ([[1], [2, -1]], [first, second], TokenIdError, "the vocabulary has 0 to 22"),
        ([[23], [2]], [first, second], TokenIdError, "the vocabulary has 0 to 22"),
    ):
        assert_refused(caches, lambda p=given_prompts, c=given_caches: model.prefill(p, c), error, match)
    expected = forward_alone(model, [1, 5])[-1]
    torch.testing.assert_close(model.prefill([[5], [6]], caches)[0], expected)


def test_prefill_refuses_a_request_past_its_limit_and_leaves_its_neighbours(model_by_dtype):
    model = model_by_dtype["float32"]
    caches = [ContinuousCache(model.config, model.dtype, max_tokens=limit) for limit in (9, 2)]
    model.prefill([[1], [2]], caches)
    assert_refused(caches, lambda: model.prefill([[3], [4, 5]], caches), CapacityError, "limit of 2")
    model.prefill([[3], [4]], caches)
    assert [cache.num_computed_tokens for cache in caches] == [2, 2]


def test_decode_refuses_what_does_not_fit_together_and_changes_nothing(model_by_dtype):
    model = model_by_dtype["float32"]
    first, fresh = caches = new_caches(model, 2)
    model.prefill([[1]], [first])
    assert_refused(caches, lambda: model.decode([1, 2], caches), ShapeError, "cache 1 holds no token; prefill")
    assert_refused(caches, lambda: model.decode([1, 2], [first]), ShapeError, "each needs one of its own")
    assert_refused(caches, lambda: model.decode([1, 2], [first, first]), ShapeError, "each needs one of its own")
    model.prefill([[1]], [fresh])
    assert torch.equal(model.decode([4], [first]), model.decode([4], [fresh]))
