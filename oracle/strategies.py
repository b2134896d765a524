"""What Hypothesis tries: model shapes, prompts, batch mixes, lengths, early ends; it shrinks to the simplest run."""

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from oracle.checkpoint_spec import ROPE_TYPES
from oracle.checkpoints import CheckpointSpec
from oracle.scenario import RequestSpec, Scenario
from oracle.schedule_strategies import with_schedule
from oracle.tiny_tokenizer import SPECIAL_TOKENS, TOKENIZER_SIZE

Draw = Callable[..., Any]
"""Gives a value of a strategy; Hypothesis's own type for it is one that the shape checks cannot read."""

# Each tuple has the simplest value first, since a shrinking search moves there.
_HEADS = ((1, 1), (2, 2), (2, 1), (4, 2), (4, 1))
"""Query and key/value heads: every ratio of 1, 2 and 4."""

_HEAD_DIMS = (16, 8, 20, 24)
_HIDDEN_SIZES = (32, 48, 64, 100)
_INTERMEDIATE_SIZES = (64, 48, 112, 172)
_VOCAB_SIZES = (97, 131, 288)
"""The last has room for the tiny tokenizer."""
_EOS_STRIDES = (0, 11, 5, 3, None)
"""Every so many-th token id ends a request, so that some rows end early; 0 for none, and None for id 0 alone."""

_DTYPES = ("float32", "float64", "bfloat16", "float16")
"""The first is drawn twice as often: float32, where most properties bite."""

_IS_INVARIANT = (True, True, True, False)
_ARRIVALS = (0, 0, 1, 2, 4)

_IS_LONG = (*(False,) * 11, True)

_STORED_DTYPES = ("float32", "bfloat16", "float16", "float64")
"""What lies in the files; the subject and both oracles widen or round it by themselves."""

MAX_PROMPT_TOKENS = 40
NUM_LONG_PROMPT_TOKENS = 270
"""Now and then a prompt is repeated until it has as many: past position 256 bfloat16 has no odd integers."""

MAX_OUTPUT_TOKENS_AFTER_LONG_PROMPT = 3
"""Without a cache each of them costs a pass over the whole prompt."""

MAX_OUTPUT_TOKENS = 8
MAX_REQUESTS = 5


@st.composite
def checkpoint_specs(draw: Draw) -> CheckpointSpec:
    """Draws a tiny model: shape, rotary scaling, biases, tied head, key names, stored dtype, shards, eos ids."""
    num_heads, num_kv_heads = draw(st.sampled_from(_HEADS), label="heads")
    vocab_size = draw(st.sampled_from(_VOCAB_SIZES), label="vocab_size")
    eos_stride = draw(st.sampled_from(_EOS_STRIDES), label="eos_stride")
    return CheckpointSpec(
        seed=draw(st.integers(0, 15), label="seed"),
        hidden_size=draw(st.sampled_from(_HIDDEN_SIZES), label="hidden_size"),
        intermediate_size=draw(st.sampled_from(_INTERMEDIATE_SIZES), label="intermediate_size"),
        num_layers=draw(st.integers(1, 3), label="num_layers"),
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=draw(st.sampled_from(_HEAD_DIMS), label="head_dim"),
        vocab_size=vocab_size,
        rope_type=draw(st.sampled_from(ROPE_TYPES), label="rope_type"),
        rope_theta=draw(st.sampled_from((10000.0, 500000.0)), label="rope_theta"),
        rope_factor=draw(st.sampled_from((4.0, 32.0)), label="rope_factor"),
        low_freq_factor=draw(st.sampled_from((0.125, 1.0)), label="low_freq_factor"),
        high_freq_factor=draw(st.sampled_from((4.0, 8.0)), label="high_freq_factor"),
        original_max_position_embeddings=draw(st.sampled_from((32, 64)), label="original_max_position_embeddings"),
        norm_eps=draw(st.sampled_from((1e-5, 1e-6)), label="norm_eps"),
        tie_word_embeddings=draw(st.booleans(), label="tie_word_embeddings"),
        attention_bias=draw(st.booleans(), label="attention_bias"),
        mlp_bias=draw(st.booleans(), label="mlp_bias"),
        legacy_rope_keys=draw(st.booleans(), label="legacy_rope_keys"),
        dtype=draw(st.sampled_from(_STORED_DTYPES), label="stored_dtype"),
        num_shards=draw(st.sampled_from((1, 2)), label="num_shards"),
        eos_token_ids=_eos_token_ids(vocab_size, eos_stride),
        num_tied_rows=draw(st.sampled_from((0, 16)), label="num_tied_rows"),
        with_tokenizer=vocab_size >= TOKENIZER_SIZE,
    )


def _eos_token_ids(vocab_size: int, stride: int | None) -> tuple[int, ...]:
    if stride is None:
        return (0,)
    return tuple(range(1, vocab_size, stride)) if stride else ()


def texts() -> st.SearchStrategy[str]:
    """Draws a text: any characters, with the names of special tokens and characters of many bytes among them."""
    pieces = st.one_of(st.sampled_from((" the", "é", "日本", "\U0001f600", "  ", *SPECIAL_TOKENS)), st.text(max_size=4))
    return st.lists(pieces, max_size=6).map("".join)


@st.composite
def requests(
    draw: Draw, vocab_size: int, max_prompt_tokens: int, max_tokens: int, num_long_prompt_tokens: int = 0
) -> RequestSpec:
    """Draws one request; id 0, padding and end-of-sequence ids may stand inside its prompt.

    Args:
        draw: Gives drawn values; Hypothesis passes it.
        vocab_size: Token ids lie below it.
        max_prompt_tokens: Most tokens of a prompt that is not repeated.
        max_tokens: Most output tokens.
        num_long_prompt_tokens: Some prompts are repeated until they have as many tokens; 0 repeats none.
    """
    token_ids = st.integers(0, vocab_size - 1)
    prompt = draw(st.lists(token_ids, min_size=1, max_size=max_prompt_tokens), label="prompt")
    if num_long_prompt_tokens and draw(st.sampled_from(_IS_LONG), label="is_long"):
        prompt = (prompt * num_long_prompt_tokens)[:num_long_prompt_tokens]
        max_tokens = min(max_tokens, MAX_OUTPUT_TOKENS_AFTER_LONG_PROMPT)
    positions = st.integers(1, max(1, len(prompt) - 1))
    cuts = draw(st.sets(positions, max_size=3), label="cuts") if len(prompt) > 1 else set()
    return RequestSpec(
        prompt_token_ids=tuple(prompt),
        max_tokens=draw(st.integers(1, max_tokens), label="max_tokens"),
        ignore_eos=draw(st.booleans(), label="ignore_eos"),
        cuts=tuple(sorted(cuts)),
        arrival=draw(st.sampled_from(_ARRIVALS), label="arrival"),
    )


def scenarios(dtypes: tuple[str, ...] = _DTYPES) -> st.SearchStrategy[Scenario]:
    """Draws a scenario with a schedule; the empty draw is one request of one token on the simplest model."""
    return with_schedule(_unscheduled(dtypes))


@st.composite
def _unscheduled(draw: Draw, dtypes: tuple[str, ...]) -> Scenario:
    spec = draw(checkpoint_specs(), label="checkpoint")
    one_request = requests(spec.vocab_size, MAX_PROMPT_TOKENS, MAX_OUTPUT_TOKENS, NUM_LONG_PROMPT_TOKENS)
    return Scenario(
        requests=tuple(draw(st.lists(one_request, min_size=1, max_size=MAX_REQUESTS), label="requests")),
        dtype=draw(st.sampled_from((dtypes[0], *dtypes)), label="dtype"),
        max_num_seqs=draw(st.sampled_from((16, 1, 2, 3)), label="max_num_seqs"),
        batch_invariant=draw(st.sampled_from(_IS_INVARIANT), label="batch_invariant"),
        texts=tuple(draw(st.lists(texts(), max_size=3), label="texts")) if spec.with_tokenizer else (),
        checkpoint=spec,
    )


@st.composite
def model_scenarios(draw: Draw, vocab_size: int, dtypes: tuple[str, ...] = ("float32",)) -> Scenario:
    """Draws a scenario for a checkpoint that exists already."""
    one_request = requests(vocab_size, MAX_PROMPT_TOKENS, MAX_OUTPUT_TOKENS, NUM_LONG_PROMPT_TOKENS)
    return Scenario(
        requests=tuple(draw(st.lists(one_request, min_size=1, max_size=MAX_REQUESTS), label="requests")),
        dtype=draw(st.sampled_from(dtypes), label="dtype"),
        max_num_seqs=draw(st.sampled_from((16, 1, 2, 3)), label="max_num_seqs"),
        batch_invariant=draw(st.sampled_from(_IS_INVARIANT), label="batch_invariant"),
        checkpoint=None,
    )
