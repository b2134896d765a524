"""SmolLM2-135M-Instruct: twenty prompts, the reference's bits and tokens in every mode.

Run with `pytest -m real_model -s` to see the figures; takes some minutes.
"""

import numpy as np
import pytest

from oracle.compare import as_rows, compare_logits, judge_tokens
from oracle.reference import Reference
from oracle.scenario import RequestSpec
from oracle.subjects import MODES, RefinferSubject
from oracle.tolerances import HALF_ERROR_FACTOR, NOISE_FACTOR, ORACLE_AGREEMENT_BOUND
from oracle.witness import Witness
from refinfer.errors import RefinferError
from refinfer.hub import resolve_model
from refinfer.tokenizer import Tokenizer

pytestmark = pytest.mark.real_model

NUM_OUTPUT_TOKENS = 64

CHATS = (
    "What is the capital of France?",
    "Name three rivers in Europe and say which one is the longest.",
    "Write a short Python function that reverses a string.",
    "Explain to a child why the sky is blue.",
    "What is 17 times 23? Show the steps.",
    "Translate 'Good morning, how are you?' into French and German.",
    "List five uses for an old newspaper.",
    "Tell me a joke about a cat.",
    "日本の首都はどこですか",
    "Как называется столица России?",
    "Hi",
)
PLAIN = (
    "The quick brown fox jumps over",
    "def fibonacci(n):\n    ",
    "Once upon a time there was a",
    "1, 2, 3, 4, 5,",
    "Water boils at a temperature of",
    "The three primary colours are",
    "In the beginning",
    "e = mc²: this formula says that",
)
PARAGRAPH = (
    "A key and a value are kept for every token, so that a later token can look back without computing them again. "
    "When requests share a batch, each must see its own past and nothing else, wherever that past is stored. "
)


@pytest.fixture(scope="module")
def folder():
    try:
        return resolve_model("smollm2")
    except RefinferError as error:
        pytest.skip(f"SmolLM2 is missing: {error}")


@pytest.fixture(scope="module")
def prompts(folder):
    tokenizer = Tokenizer.from_folder(folder)
    ids = [tokenizer.encode_chat([{"role": "user", "content": text}]) for text in CHATS]
    ids += [tokenizer.encode(text) for text in PLAIN]
    ids.append(tokenizer.encode(PARAGRAPH * 12)[:500])
    assert len(ids) == 20
    return [tuple(prompt) for prompt in ids]


@pytest.fixture(scope="module")
def reference(folder):
    return Reference.open(folder)


@pytest.fixture(scope="module")
def reference_tokens(reference, prompts, folder):
    eos_token_ids = RefinferSubject(folder, "none", dtype="float32", max_num_seqs=1).eos_token_ids
    return [
        tuple(reference.greedy(list(prompt), NUM_OUTPUT_TOKENS, eos_token_ids, use_cache=True)[0]) for prompt in prompts
    ]


def test_forward_matches_reference_bits(folder, prompts, reference):
    subject = RefinferSubject(folder, "none", dtype="float32", max_num_seqs=1)
    for index, prompt in enumerate(prompts):
        logits, expected = as_rows(subject.all_logits(prompt)), as_rows(reference.logits(list(prompt)))
        compare_logits(logits, expected, 0.0, f"prompt {index} of {len(prompt)} tokens, all rows")
    lengths = sorted(map(len, prompts))
    print(f"\n20 prompts of {lengths[0]} to {lengths[-1]} tokens: all rows differ by 0.0")  # noqa: T201


def test_witness_agrees_with_reference(folder, prompts, reference):
    witness = Witness.open(folder)
    largest = max(
        compare_logits(
            as_rows(reference.logits(list(prompt))), witness.logits(list(prompt)), ORACLE_AGREEMENT_BOUND, ""
        )
        for prompt in prompts
    )
    print(f"\nwitness against reference: at most {largest:.3g}")  # noqa: T201


@pytest.mark.parametrize("max_num_seqs", [1, 7], ids=["alone", "batched"])
@pytest.mark.parametrize("mode", MODES)
def test_mode_matches_reference_token_ids(folder, prompts, reference, reference_tokens, mode, max_num_seqs):
    subject = RefinferSubject(folder, mode, dtype="float32", max_num_seqs=max_num_seqs)
    requests = [RequestSpec(prompt, NUM_OUTPUT_TOKENS) for prompt in prompts]
    num_same = num_near_ties = 0
    smallest_margin, largest = np.inf, 0.0
    for index, record in enumerate(subject.run(requests)):
        num_prompt_tokens = len(record.prompt_token_ids)
        expected = as_rows(reference.logits(list(record.token_ids)))[num_prompt_tokens - 1 : -1]
        bound = NOISE_FACTOR * ORACLE_AGREEMENT_BOUND
        what = f"{mode}, prompt {index}"
        difference = compare_logits(as_rows(record.logits), expected, bound, what)
        judgement = judge_tokens(record.output_token_ids, as_rows(record.logits), expected, difference, what)
        num_near_ties += judgement.num_near_ties
        smallest_margin = min(smallest_margin, judgement.smallest_margin)
        largest = max(largest, difference)
        num_same += record.output_token_ids == reference_tokens[index]
    print(  # noqa: T201
        f"\n{mode}, {max_num_seqs} at a time: {num_same} of {len(prompts)} prompts give the reference's tokens, "
        f"{num_near_ties} near ties, smallest margin {smallest_margin:.3g}, logits differ by at most {largest:.3g}"
    )
    assert num_same + num_near_ties >= len(prompts)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("mode", MODES)
def test_half_precision_is_as_close_to_the_witness_as_the_reference_is(folder, prompts, mode, dtype):
    subject = RefinferSubject(folder, mode, dtype=dtype, max_num_seqs=4)
    reference, witness = Reference.open(folder, dtype=dtype), Witness.open(folder)
    errors, reference_errors = [], []
    for record in subject.run([RequestSpec(prompt, 8, ignore_eos=True) for prompt in prompts[:4]]):
        rows = slice(len(record.prompt_token_ids) - 1, -1)
        truth = witness.logits(list(record.token_ids))[rows]
        errors.append(np.abs(as_rows(record.logits) - truth))
        reference_errors.append(np.abs(as_rows(reference.logits(list(record.token_ids)))[rows] - truth))
    own, theirs = np.concatenate(errors), np.concatenate(reference_errors)
    print(  # noqa: T201
        f"\n{mode}, {dtype}: largest error {own.max():.3g} (reference {theirs.max():.3g}), "
        f"mean {own.mean():.3g} (reference {theirs.mean():.3g})"
    )
    assert own.max() <= HALF_ERROR_FACTOR * theirs.max()
    assert own.mean() <= HALF_ERROR_FACTOR * theirs.mean()
