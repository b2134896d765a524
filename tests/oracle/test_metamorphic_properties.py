"""Company, order and chunks change nothing; where one of them does, the property that looks there says so."""

from dataclasses import replace

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from oracle.case import Case
from oracle.checkpoints import CheckpointSpec
from oracle.errors import LogitsMismatch, MismatchError, OutcomeMismatch, TokenMismatch
from oracle.metamorphic_properties import check_alone_equals_batched, check_bits, check_chunked_prefill, check_order
from oracle.scenario import DTYPES, RequestSpec, Scenario
from oracle.subjects import MODES, RefinferSubject

pytestmark = pytest.mark.without_shape_checks

FEW = settings(max_examples=max(5, settings().max_examples // 4))
"""A dependence shows at once or never."""

ALL_CHECKS = (check_alone_equals_batched, check_order, check_chunked_prefill)


def only_together(change):
    """A corruption of the first record, in runs of several requests."""

    def corrupt(records):
        return [change(records[0]), *records[1:]] if len(records) > 1 else records

    return corrupt


@FEW
@given(data=st.data())
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_a_right_subject_passes_every_metamorphic_property(data, dtype, scripted_case, scripted_requests):
    requests = data.draw(st.lists(scripted_requests, min_size=1, max_size=3))
    case = scripted_case(Scenario(requests=tuple(requests), dtype=dtype, checkpoint=None))
    for check in ALL_CHECKS:
        assert check(case, "none").num_near_ties == 0


@FEW
@given(data=st.data())
@pytest.mark.parametrize("check", [check_alone_equals_batched, check_order])
def test_a_row_that_depends_on_its_company_is_seen(data, check, scripted_case, scripted_requests):
    """In a batch, the first row's scores are off; alone, or at another place, they are not."""
    requests = data.draw(st.lists(scripted_requests, min_size=2, max_size=3))
    corrupt = only_together(lambda record: replace(record, logits=record.logits + torch.arange(11) * 1e-2))
    with pytest.raises(LogitsMismatch, match="request"):
        check(scripted_case(Scenario(requests=tuple(requests), checkpoint=None), corrupt), "none")


@FEW
@given(data=st.data())
@pytest.mark.parametrize("check", [check_alone_equals_batched, check_order])
@pytest.mark.parametrize("is_longer_together", [True, False])
def test_an_answer_whose_length_depends_on_its_company_is_seen(
    data, check, is_longer_together, scripted_case, scripted_requests
):
    requests = data.draw(st.lists(scripted_requests, min_size=2, max_size=3))
    scenario = Scenario(requests=tuple(requests), checkpoint=None)
    assume(len(scripted_case(scenario).records("none")[0].output_token_ids) > 1)
    assume(len(set(requests)) == len(requests))

    def shorter(record):
        return replace(record, output_token_ids=record.output_token_ids[:-1], logits=record.logits[:-1])

    def longer(record):
        return replace(
            record,
            output_token_ids=(*record.output_token_ids, 0),
            logits=torch.cat([record.logits, record.logits[-1:]]),
        )

    corrupt = only_together(longer if is_longer_together else shorter)
    with pytest.raises(MismatchError):
        check(scripted_case(scenario, corrupt), "none")


@pytest.mark.parametrize("num_requests", [1, 2])
@pytest.mark.parametrize("check", [check_alone_equals_batched, check_order])
def test_company_and_order_are_witnessed_by_several_requests_only(check, num_requests, scripted_case):
    requests = (RequestSpec((1,)),) * num_requests
    observation = check(scripted_case(Scenario(requests=requests, checkpoint=None)), "none")
    assert observation.witnessed is (num_requests > 1)


def test_company_is_not_witnessed_when_requests_run_one_after_another(scripted_case):
    def in_turn(records):
        return [replace(record, batch_sizes=(1,) * len(record.batch_sizes)) for record in records]

    case = scripted_case(Scenario(requests=(RequestSpec((1,)),) * 3, checkpoint=None), in_turn)
    assert not check_alone_equals_batched(case, "none").witnessed


def with_tie(record, favoured, size):
    """Brings the two best scores of the second output together, and lets one of them win by so much."""
    logits = record.logits.clone()
    best_two = logits[1].topk(2).indices
    logits[1, best_two] = logits[1, best_two].mean()
    logits[1, best_two[favoured]] += size
    tokens = list(record.output_token_ids)
    tokens[1] = int(logits[1].argmax())
    return replace(record, logits=logits, output_token_ids=tuple(tokens))


@pytest.fixture
def tied_case(scripted_case):
    """Two requests, of which the first has a tie that turns out differently alone and together."""
    requests = (RequestSpec((1, 2), 4, ignore_eos=True), RequestSpec((5,), 4, ignore_eos=True))

    def make(size, *, batch_invariant=False):
        def corrupt(records):
            return [
                with_tie(record, favoured=int(len(records) > 1), size=size)
                if record.prompt_token_ids == (1, 2)
                else record
                for record in records
            ]

        scenario = Scenario(requests=requests, batch_invariant=batch_invariant, checkpoint=None)
        return scripted_case(scenario, corrupt)

    return make


def test_a_near_tie_between_alone_and_together_passes_and_is_counted(tied_case):
    case = tied_case(1e-6)
    (alone,) = case.records_in_order("none", (0,))
    together = case.records("none")[0]
    assert alone.output_token_ids[1] != together.output_token_ids[1]
    assert check_alone_equals_batched(case, "none").num_near_ties == 1


def test_the_invariant_manner_has_no_near_ties(tied_case):
    with pytest.raises(LogitsMismatch):
        check_alone_equals_batched(tied_case(1e-6, batch_invariant=True), "none")


BITS_SCENARIO = Scenario(
    requests=(
        RequestSpec((5, 3, 8, 2, 7) * 14, max_tokens=4, ignore_eos=True, cuts=(1, 63)),
        RequestSpec((9,), max_tokens=5, ignore_eos=True, arrival=1),
        RequestSpec((4, 4, 2), max_tokens=3, ignore_eos=True),
    )
)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mode", MODES)
def test_bits_hold_in_every_mode_and_dtype(mode, dtype):
    observation = check_bits(Case(replace(BITS_SCENARIO, dtype=dtype)), mode)
    assert observation.witnessed
    assert observation.largest_difference == 0.0
    assert (observation.num_schedules, observation.num_rows >= 24) == (6 if mode == "continuous" else 2, True)


def test_bits_see_nothing_in_the_plain_manner():
    observation = check_bits(Case(replace(BITS_SCENARIO, batch_invariant=False)), "none")
    assert (observation.witnessed, observation.num_schedules) == (False, 0)


def one_bit_off(rows):
    rows[-1, 3] = torch.nextafter(rows[-1, 3], torch.tensor(torch.inf))
    return rows


def test_bits_refuse_a_bit_that_follows_company(monkeypatch):
    case = Case(BITS_SCENARIO)
    right = case.subject("static").run
    monkeypatch.setattr(
        case.subject("static"),
        "run",
        lambda requests: [replace(record, logits=one_bit_off(record.logits.clone())) for record in right(requests)],
    )
    with pytest.raises(LogitsMismatch, match="static, request 0, in order"):
        check_bits(case, "static")


def test_bits_refuse_a_bit_that_follows_chunks(monkeypatch):
    case = Case(BITS_SCENARIO)
    subject = case.subject("continuous")
    right = subject.run_chunks
    monkeypatch.setattr(subject, "run_chunks", lambda *arguments: [one_bit_off(rows) for rows in right(*arguments)])
    with pytest.raises(LogitsMismatch, match="cut at"):
        check_bits(case, "continuous")


def test_two_tokens_that_are_no_near_tie_are_refused(tied_case):
    with pytest.raises((LogitsMismatch, TokenMismatch)):
        check_alone_equals_batched(tied_case(0.5), "none")


@FEW
@given(data=st.data())
def test_a_prompt_that_depends_on_its_cuts_is_seen(data, scripted_case, scripted_requests):
    requests = data.draw(st.lists(scripted_requests, min_size=1, max_size=3))
    case = scripted_case(Scenario(requests=tuple(requests), checkpoint=None))
    index = data.draw(st.integers(0, len(requests) - 1), label="request")
    right = case.subject("none").chunked_prefill

    def wrong(prompts, cuts):
        logits = right(prompts, cuts)
        logits[index, 3] += 1e-2
        return logits

    case.subject("none").chunked_prefill = wrong
    with pytest.raises(LogitsMismatch, match=f"request {index}, prefilled in chunks"):
        check_chunked_prefill(case, "none")


@pytest.mark.parametrize(("cuts", "is_witnessed"), [((), False), ((1,), True)])
def test_chunks_are_witnessed_by_a_cut_only(cuts, is_witnessed, scripted_case):
    requests = (RequestSpec((1, 2)), RequestSpec((1, 2, 3), cuts=cuts))
    observation = check_chunked_prefill(scripted_case(Scenario(requests=requests, checkpoint=None)), "none")
    assert observation.witnessed is is_witnessed


def test_answers_in_another_order_than_prompts_are_seen(monkeypatch):
    """As an order of names gives, of which the eleventh comes before the second."""
    case = Case(Scenario((RequestSpec((3, 1, 4, 15, 9)), RequestSpec((2, 6))), checkpoint=CheckpointSpec(num_layers=1)))
    check_order(case, "none")
    answered = RefinferSubject.prompts_answered

    def by_name(self, prompts):
        own = answered(self, prompts)
        return [own[place] for place in sorted(range(len(own)), key=str)]

    monkeypatch.setattr(RefinferSubject, "prompts_answered", by_name)
    with pytest.raises(OutcomeMismatch, match=r"prompts .* were given, and answered in the order"):
        check_order(case, "none")
