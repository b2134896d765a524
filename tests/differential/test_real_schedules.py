"""SmolLM2 through a pool that holds a third of its requests: preempted, swapped, sharing prefixes, and still right.

Needs the fetched model, and shows its figures as it goes.
"""

import sys

import numpy as np
import pytest

from oracle.compare import as_rows
from oracle.reference import Reference
from refinfer import LLM, SamplingParams
from refinfer.cache.block_table import BlockTable
from refinfer.engine import LoadedModel
from refinfer.tokenizer import Tokenizer

pytestmark = [pytest.mark.real_model, pytest.mark.without_shape_checks, pytest.mark.usefixtures("_all_cores")]

NUM_TOKENS = 24
BLOCK_SIZE = 16
MAX_TIE = 1e-3
"""Of the reference's best two logits; a different token at a wider gap is wrong."""

SUBJECTS = ("the sea", "a paper clip", "winter", "Ada Lovelace", "bread", "the number 7", "bees", "an old map")
QUESTIONS = ("Tell me about {}.", "Why do people like {}?", "Write one long sentence on {}, in the style of a letter.")


@pytest.fixture(scope="module")
def prompts(smollm2) -> list[tuple[int, ...]]:
    """Twenty-four chats, which begin with the same system prompt; the last sixth of them are several hundred tokens."""
    tokenizer = Tokenizer.from_folder(smollm2)
    texts = [question.format(subject) for subject in SUBJECTS for question in QUESTIONS]
    texts[-4:] = [" ".join([text] * repeats) for text, repeats in zip(texts[-4:], (9, 12, 15, 18), strict=True)]
    return [tuple(tokenizer.encode_chat([{"role": "user", "content": text}])) for text in texts]


@pytest.fixture(scope="module")
def expected(smollm2, prompts):
    """Hugging Face's tokens and their logits."""
    reference = Reference.open(smollm2)
    answers = [reference.greedy(prompt, NUM_TOKENS, use_cache=True) for prompt in prompts]
    return [(tuple(token_ids), as_rows(logits)) for token_ids, logits in answers]


@pytest.mark.parametrize("preemption", ["recompute", "swap"])
def test_real_requests_in_a_small_pool_match_reference_tokens(
    smollm2, prompts, expected, preemption, capsys, record_property
):
    lengths = [len(prompt) + NUM_TOKENS for prompt in prompts]
    num_needed = sum(BlockTable.blocks_for(length, BLOCK_SIZE) for length in lengths)
    llm = LLM(
        LoadedModel.load(smollm2),
        cache="paged",
        max_num_seqs=24,
        max_model_len=max(lengths),
        block_size=BLOCK_SIZE,
        num_blocks=max(num_needed // 3, BlockTable.blocks_for(max(lengths), BLOCK_SIZE)),
        preemption=preemption,
        placement_seed=1,
    )
    outputs = llm.generate([list(prompt) for prompt in prompts], SamplingParams(max_tokens=NUM_TOKENS))
    num_ties = 0
    for index, (output, (token_ids, logits)) in enumerate(zip(outputs, expected, strict=True)):
        own = tuple(output.outputs[0].token_ids)
        if own == token_ids:
            continue
        place = next(i for i, pair in enumerate(zip(own, token_ids, strict=False)) if pair[0] != pair[1])
        margin = float(np.diff(np.sort(logits[place])[-2:])[0])
        assert margin <= MAX_TIE, f"request {index} parts at output token {place}, where the margin is {margin}"
        num_ties += 1
    stats = llm.engine.stats()
    figure = (
        f"{len(prompts)} requests of {min(lengths)} to {max(lengths)} tokens, {num_needed} blocks needed and "
        f"{stats.num_blocks} there: {len(prompts) - num_ties} equal, {num_ties} part at a tie; "
        f"{stats.num_preemptions} preemptions, {stats.num_swaps} swaps, {stats.num_hit_tokens} hit tokens, "
        f"{stats.num_copied_blocks} copies, {stats.num_evicted_blocks} evictions, {stats.num_steps} steps"
    )
    record_property(f"small pool, {preemption}", figure)
    with capsys.disabled():
        sys.stdout.write(f"\n  {preemption}: {figure}\n")
    assert stats.num_preemptions
    assert stats.num_hit_tokens
    assert bool(stats.num_swaps) == (preemption == "swap")
    assert stats.num_used_blocks == 0
