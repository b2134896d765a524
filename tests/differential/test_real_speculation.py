"""SmolLM2 with guessed tokens: the reference's tokens in fewer passes, and a draft model like it is always right.

Needs the fetched model, and shows its figures as it goes.
"""

import sys

import pytest

from oracle.reference import Reference
from refinfer import LLM, SamplingParams
from refinfer.engine import LoadedModel
from refinfer.tokenizer import Tokenizer

pytestmark = [pytest.mark.real_model, pytest.mark.without_shape_checks, pytest.mark.usefixtures("_all_cores")]

NUM_TOKENS = 96
NUM_GUESSED = 4
LEAST_FEWER = 1.66
"""So many times fewer passes, at least, than tokens."""

TEXTS = (
    "Repeat after me: one two three four five. one two three four five. one two three",
    "A list: apple, pear, apple, pear, apple, pear,",
    "def f(x):\n    return x + 1\n\ndef g(x):\n    return x + 1\n\ndef h(x):",
    "1 2 3 4 1 2 3 4 1 2 3 4",
)


@pytest.fixture(scope="module")
def loaded(smollm2) -> LoadedModel:
    """The model, loaded once."""
    return LoadedModel.load(smollm2)


@pytest.fixture(scope="module")
def prompts(smollm2) -> list[list[int]]:
    """Four prompts that repeat themselves."""
    tokenizer = Tokenizer.from_folder(smollm2)
    return [list(tokenizer.encode(text)) for text in TEXTS]


def run(loaded, prompts, max_tokens=NUM_TOKENS, **options):
    """Tokens of each prompt run by itself, and the sums of what the engines counted."""
    params = SamplingParams(max_tokens=max_tokens, ignore_eos=True)
    token_ids, nums_steps, nums_proposed, nums_accepted = [], [], [], []
    for prompt in prompts:
        llm = LLM(loaded, num_speculative_tokens=NUM_GUESSED, **options)
        token_ids.append(list(llm.generate([prompt], params)[0].outputs[0].token_ids))
        stats = llm.engine.stats()
        nums_steps.append(stats.num_steps)
        nums_proposed.append(stats.num_proposed_tokens)
        nums_accepted.append(stats.num_accepted_tokens)
    return token_ids, sum(nums_steps), sum(nums_proposed), sum(nums_accepted)


def test_looked_up_guesses_save_passes_and_give_the_references_tokens(
    smollm2, loaded, prompts, capsys, record_property
):
    token_ids, num_steps, num_proposed, num_accepted = run(loaded, prompts, speculative="ngram")
    reference = Reference.open(smollm2)
    expected = [list(reference.greedy(prompt, NUM_TOKENS, use_cache=True)[0]) for prompt in prompts]
    assert token_ids == expected
    ratio = NUM_TOKENS * len(prompts) / num_steps
    figure = (
        f"{NUM_TOKENS * len(prompts)} tokens of {len(prompts)} prompts in {num_steps} passes, {ratio:.2f} times fewer; "
        f"{num_accepted} of {num_proposed} guesses stayed"
    )
    record_property("n-gram", figure)
    with capsys.disabled():
        sys.stdout.write(f"\n  {figure}\n")
    assert ratio >= LEAST_FEWER


def test_draft_model_that_is_the_model_is_always_right(smollm2, loaded, prompts):
    max_tokens = 41
    _, num_steps, num_proposed, num_accepted = run(loaded, prompts[:1], max_tokens, speculative=str(smollm2))
    assert num_accepted == num_proposed > 0
    assert num_steps == 1 + (max_tokens - 1) // (NUM_GUESSED + 1)
