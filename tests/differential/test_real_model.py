"""SmolLM2 in every mode, against Hugging Face: bits of one pass, greedy tokens alone and in company, errors.

Needs the fetched model, takes many minutes on two cores, and shows its figures as it goes.
"""

import sys
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from oracle import case as case_module
from oracle.case import Case
from oracle.compare import as_rows, compare_logits, judge_tokens
from oracle.reference import Reference
from oracle.reference_properties import check_half_precision
from oracle.scenario import RequestSpec, Scenario
from oracle.subjects import MODES, RefinferSubject, RequestRecord
from oracle.tolerances import FLOAT64_BOUND, HALF_ERROR_FACTOR, ORACLE_AGREEMENT_BOUND
from refinfer.tokenizer import Tokenizer

pytestmark = [pytest.mark.real_model, pytest.mark.without_shape_checks, pytest.mark.usefixtures("_all_cores")]

NUM_TOKENS = 64

QUESTIONS = (
    "What is the capital of France?",
    "Write a short poem about the sea in winter.",
    "Explain to a child why the sky is blue.",
    "List three uses of a paper clip, one to a line.",
    "If a train leaves at 9:40 and the ride takes 75 minutes, when does it arrive?",
    "서울에서 부산까지 기차로 얼마나 걸리나요?",
    "Write a Python function that reverses a list in place, with a docstring.",
    "Translate into German: the cat sleeps on the warm stove.",
)

TEXTS = (
    "The quick brown fox jumps over",
    "Once upon a time there was a lighthouse keeper who",
    "def fibonacci(n):\n    if n < 2:\n        return n\n",
    "1, 1, 2, 3, 5, 8, 13,",
    "吾輩は猫である。名前はまだ",
    "हिमालय भारत के उत्तर में स्थित एक पर्वत",
    "Dear Sir or Madam,\n\nI am writing to complain about the",
    '{"name": "Ada", "born": 1815, "languages": ["English",',
    "Water boils at 100 degrees at sea level, but on a high mountain",
)

STORY = (
    "Day {day}. The expedition left the camp before dawn and followed the river to the north. "
    "Nobody spoke for a long time; the guide counted the bridges, and the cook, who had been a sailor, "
    "told the mules about the wind. At noon the fog lifted, and for the first time we saw the whole valley, "
    "with {day} towers and not a single road between them. "
)

LENGTHS = (5, 240, 500)
"""Prompts cut from the story to so many tokens; the other seventeen are as long as their text."""


def tell(capsys, record_property, name, text):
    """Shows a figure although output is captured, and keeps it for reports."""
    record_property(name, text)
    with capsys.disabled():
        sys.stdout.write(f"\n  {name}: {text}\n")


@pytest.fixture(scope="module", autouse=True)
def _let_go_afterwards() -> Iterator[None]:
    """Lets go of this model's reference and witness, which are large."""
    yield
    case_module._open_reference.cache_clear()
    case_module._open_witness.cache_clear()


@pytest.fixture(scope="module")
def prompts(smollm2) -> list[tuple[int, ...]]:
    """Twenty prompts of 5 to 500 tokens: eight chats, nine texts, three pieces of a story."""
    tokenizer = Tokenizer.from_folder(smollm2)
    chats = [tokenizer.encode_chat([{"role": "user", "content": question}]) for question in QUESTIONS]
    story = tokenizer.encode("".join(STORY.format(day=day) for day in range(1, 12)))
    made = [*chats, *(tokenizer.encode(text) for text in TEXTS), *(story[:length] for length in LENGTHS)]
    assert [len(made), min(map(len, made)), max(map(len, made))] == [20, *LENGTHS[::2]]
    return [tuple(prompt) for prompt in made]


@pytest.fixture(scope="module")
def expected(smollm2, prompts) -> list[tuple[tuple[int, ...], np.ndarray]]:
    """Hugging Face's tokens and their logits: a batch of one, its forward in a loop over its cache."""
    reference = Reference.open(smollm2)
    answers = [reference.greedy(prompt, NUM_TOKENS, use_cache=True) for prompt in prompts]
    return [(tuple(token_ids), as_rows(logits)) for token_ids, logits in answers]


def test_real_margins_are_known(expected, capsys, record_property):
    """How close the reference's own best two come: what the comparisons of tokens below rest on."""
    margins = np.concatenate([np.diff(np.partition(rows, -2)[:, -2:]).ravel() for _, rows in expected])
    tell(
        capsys,
        record_property,
        "margins between Hugging Face's best two logits",
        f"{len(margins)} positions, smallest {margins.min():.2g}, 1 % below {np.quantile(margins, 0.01):.2g}",
    )
    assert len(margins) == 20 * NUM_TOKENS
    assert margins.min() >= 0


def test_real_forward_matches_reference_bits(smollm2, prompts, capsys, record_property):
    subject = RefinferSubject(smollm2, "none", dtype="float32", max_num_seqs=1, batch_invariant=False)
    reference = Reference.open(smollm2)
    num_rows = 0
    for index, prompt in enumerate(prompts):
        logits = as_rows(subject.all_logits(prompt))
        compare_logits(logits, as_rows(reference.logits(prompt)), 0.0, f"prompt {index} of {len(prompt)} tokens")
        num_rows += len(logits)
    lengths = sorted(map(len, prompts))
    figure = f"{num_rows} of {num_rows} rows equal, difference 0.0, {len(prompts)} prompts of {lengths} tokens"
    tell(capsys, record_property, "float32 forward against Hugging Face", figure)


def judged(smollm2, record: RequestRecord, index: int, what: str) -> str:
    """Lets another token than the reference's pass if it is a tie, and tells its margin; else raises."""
    case = Case(Scenario((RequestSpec(record.prompt_token_ids, NUM_TOKENS),), checkpoint=None), smollm2)
    referee, bound = case.referee_logits(record.token_ids)[case.output_rows(record)], case.bound(record.token_ids)
    judgement = judge_tokens(record.output_token_ids, as_rows(record.logits), referee, bound, f"prompt {index}, {what}")
    return (
        f"prompt {index}, {what}: {judgement.num_exact_ties} exact and {judgement.num_near_ties} near ties, "
        f"smallest margin {judgement.smallest_margin:.2g}, bound {2 * bound:.2g}"
    )


def compare_answers(smollm2, records, expected, what) -> list[str]:
    """Holds records to the reference's answers; gives a line for each that differs by a tie."""
    ties = []
    for index, (record, (token_ids, _)) in enumerate(zip(records, expected, strict=True)):
        if record.output_token_ids != token_ids[: len(record.output_token_ids)]:
            ties.append(judged(smollm2, record, index, what))
    return ties


@pytest.mark.parametrize("mode", MODES)
def test_real_mode_matches_reference_token_ids(smollm2, prompts, expected, mode, capsys, record_property):
    """Alone; and in batches of seven with company of other lengths, which ends and makes room in between."""
    requests = [RequestSpec(prompt, NUM_TOKENS, ignore_eos=True) for prompt in prompts]
    company = [replace(request, max_tokens=9 + 11 * index) for index, request in enumerate(requests[::5])]
    mixed = [request for group in (requests[:6], company, requests[6:]) for request in group]
    subject = RefinferSubject(smollm2, mode, dtype="float32", max_num_seqs=7)
    alone = [record for request in requests for record in subject.run([request])]
    together = subject.run(mixed)
    mine = [*together[:6], *together[6 + len(company) :]]
    ties = compare_answers(smollm2, alone, expected, f"{mode}, alone")
    ties += compare_answers(smollm2, mine, expected, f"{mode}, together")
    ties += compare_answers(smollm2, together[6 : 6 + len(company)], expected[::5], f"{mode}, company")
    assert max(size for record in together for size in record.batch_sizes) == 7
    assert {len(record.output_token_ids) for record in [*alone, *mine]} == {NUM_TOKENS}
    num_tokens = sum(len(record.output_token_ids) for record in [*alone, *together])
    figure = f"{num_tokens} tokens of {len(alone) + len(together)} answers, {len(ties)} answers differ"
    tell(capsys, record_property, f"{mode} against Hugging Face", "; ".join([figure, *ties]))


def test_real_witness_matches_reference_logits(smollm2, prompts, capsys, record_property):
    case = Case(Scenario((RequestSpec((1,)),), checkpoint=None), smollm2)
    differences = [
        compare_logits(
            case.reference_logits(prompt), case.witness_logits(prompt), ORACLE_AGREEMENT_BOUND, f"prompt {index}"
        )
        for index, prompt in enumerate(prompts)
    ]
    figure = f"largest difference {max(differences):.2g} over {len(prompts)} prompts, bound {ORACLE_AGREEMENT_BOUND}"
    tell(capsys, record_property, "float64 witness against Hugging Face float32", figure)


def test_real_float64_matches_witness_logits(smollm2, prompts, capsys, record_property):
    chosen = [prompts[0], prompts[5], prompts[12], prompts[18]]
    case = Case(Scenario((RequestSpec((1,)),), dtype="float64", checkpoint=None), smollm2)
    differences = [
        compare_logits(
            as_rows(case.subject("none").all_logits(prompt)), case.witness_logits(prompt), FLOAT64_BOUND, "all rows"
        )
        for prompt in chosen
    ]
    figure = f"largest difference {max(differences):.2g} over {sum(map(len, chosen))} rows, bound {FLOAT64_BOUND}"
    tell(capsys, record_property, "float64 forward against the witness", figure)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_real_half_precision_is_as_close_to_the_witness_as_the_reference(
    smollm2, prompts, dtype, capsys, record_property
):
    requests = tuple(RequestSpec(prompts[index], 6, ignore_eos=True) for index in (0, 10, 12, 14))
    case = Case(Scenario(requests, dtype=dtype, checkpoint=None), smollm2)
    for mode in MODES:
        observation = check_half_precision(case, mode)
        assert observation.subject_errors is not None
        assert observation.reference_errors is not None
        quotients = [
            own / theirs
            for own, theirs in zip(observation.subject_errors[:2], observation.reference_errors[:2], strict=True)
        ]
        figure = f"{quotients[0]:.2f} times the largest, {quotients[1]:.2f} times the mean error of Hugging Face"
        tell(capsys, record_property, f"{dtype} in {mode}", figure)
        assert max(quotients) <= HALF_ERROR_FACTOR
