"""A mode in the dock is recorded as it ran: every token with the logits it was picked from."""

import pytest
import torch

from oracle.checkpoints import CheckpointSpec, cached_checkpoint
from oracle.errors import NeverEnds
from oracle.faults import FAULTS
from oracle.reference import Reference
from oracle.scenario import DTYPES, RequestSpec
from oracle.subjects import MODES, RefinferSubject, Subject, options_of
from refinfer.config.engine_config import CACHES, READERS

SPEC = CheckpointSpec(num_layers=1, eos_token_ids=tuple(range(1, 131, 3)))
REQUESTS = [
    RequestSpec((1, 2, 3), max_tokens=5, ignore_eos=True),
    RequestSpec((7,), max_tokens=2, ignore_eos=True),
    RequestSpec((9, 9), max_tokens=9),
]


@pytest.fixture(scope="module")
def folder():
    """A generated model in which a third of all tokens ends a request."""
    return cached_checkpoint(SPEC)


def subject(folder, mode, *, dtype="float32", max_num_seqs=16):
    """A mode in the dock."""
    return RefinferSubject(folder, mode, dtype=dtype, max_num_seqs=max_num_seqs)


def test_every_cache_and_every_reader_is_a_mode():
    """And no mode is another one under a second name."""
    options = [options_of(mode) for mode in MODES]
    ways = [(cache, reader) for cache in CACHES for reader in (READERS if cache == "paged" else (None,))]
    assert sorted((own["cache"], own.get("paged_attention") or "") for own in options) == sorted(
        (cache, reader or "") for cache, reader in ways
    )


@pytest.mark.parametrize("mode", MODES)
def test_records_hold_each_token_with_the_logits_it_was_picked_from(folder, mode):
    for request, record in zip(REQUESTS, subject(folder, mode).run(REQUESTS), strict=True):
        assert record.prompt_token_ids == request.prompt_token_ids
        assert record.logits.shape == (len(record.output_token_ids), SPEC.vocab_size)
        assert tuple(record.logits.argmax(-1).tolist()) == record.output_token_ids
        assert len(record.batch_sizes) == len(record.output_token_ids)


@pytest.mark.parametrize("mode", MODES)
def test_records_tell_how_requests_ended(folder, mode):
    first, second, third = subject(folder, mode).run(REQUESTS)
    assert (first.finish_reason, len(first.output_token_ids)) == ("length", 5)
    assert (second.finish_reason, len(second.output_token_ids)) == ("length", 2)
    assert (third.finish_reason == "stop") == (third.output_token_ids[-1] in SPEC.eos_token_ids)


@pytest.mark.parametrize("mode", MODES)
def test_batch_sizes_count_the_requests_that_got_a_token_in_the_same_step(folder, mode):
    requests = [RequestSpec((1,), max_tokens=count, ignore_eos=True) for count in (1, 3, 2)]
    sizes = [record.batch_sizes for record in subject(folder, mode).run(requests)]
    assert sizes == [(3,), (3, 2, 1), (3, 2)]
    sizes = [record.batch_sizes for record in subject(folder, mode, max_num_seqs=1).run(requests)]
    assert sizes == [(1,), (1, 1, 1), (1, 1)]


@pytest.mark.parametrize("dtype", DTYPES)
def test_logits_are_recorded_in_the_subjects_dtype(folder, dtype):
    own = subject(folder, "none", dtype=dtype)
    assert own.run(REQUESTS)[0].logits.dtype is getattr(torch, dtype)
    assert own.all_logits([1, 2]).dtype is getattr(torch, dtype)


def test_two_runs_of_one_subject_share_nothing(folder):
    own = subject(folder, "continuous")
    first = own.run(REQUESTS)
    own.run(REQUESTS[::-1])
    for before, after in zip(first, own.run(REQUESTS), strict=True):
        assert torch.equal(before.logits, after.logits)


def test_all_logits_are_those_of_one_pass(folder):
    own = RefinferSubject(folder, "none", dtype="float32", max_num_seqs=16, batch_invariant=False)
    logits = own.all_logits([1, 2, 3, 4])
    assert torch.equal(logits, Reference.open(folder).logits([1, 2, 3, 4]))


@pytest.mark.parametrize("cuts", [[(), (), ()], [(1,), (), (1,)], [(1, 2), (), (1,)], [(1, 2, 3), (), ()]])
def test_chunked_prefill_gives_the_last_logits_of_each_prompt(folder, cuts):
    """A prompt without a cut ends in the first step, a prompt with several later than the others."""
    prompts = [(1, 2, 3, 4), (7,), (9, 9)]
    own = subject(folder, "continuous")
    logits = own.chunked_prefill(prompts, cuts)
    for row, prompt in zip(logits, prompts, strict=True):
        torch.testing.assert_close(row, own.all_logits(prompt)[-1], rtol=0, atol=1e-4)


def test_chunked_prefill_really_cuts(folder, monkeypatch):
    own = subject(folder, "continuous")
    model = own._llm.model
    seen = []
    prefill = model.prefill

    def remember(prompts, caches):
        seen.append([list(prompt) for prompt in prompts])
        return prefill(prompts, caches)

    monkeypatch.setattr(model, "prefill", remember)
    own.chunked_prefill([(1, 2, 3), (7, 8)], [(1, 2), ()])
    assert seen == [[[1], [7, 8]], [[2]], [[3]]]


def test_subject_names_its_mode_and_the_ids_that_end_a_request(folder):
    own = subject(folder, "static")
    assert isinstance(own, Subject)
    assert own.name == "static"
    assert own.eos_token_ids == SPEC.eos_token_ids


@pytest.mark.without_shape_checks
def test_requests_that_never_end_are_a_failure(folder, monkeypatch):
    """A run that waits for them would say nothing at all."""
    monkeypatch.setattr("oracle.drive.MIN_MAX_STEPS", 20)
    subject = RefinferSubject(folder, "paged", dtype="float32", max_num_seqs=4)
    with FAULTS["ended_request_keeps_its_place"].planted(), pytest.raises(NeverEnds, match="have not ended"):
        subject.run([RequestSpec((1, 2), max_tokens=2), RequestSpec((3,), max_tokens=1)])
