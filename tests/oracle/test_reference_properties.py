"""Right records pass every property; each way of spoiling one fails the property that looks there."""

from dataclasses import replace

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from oracle.case import Case
from oracle.checkpoints import CheckpointSpec
from oracle.errors import LogitsMismatch, MismatchError, OutcomeMismatch, TokenMismatch
from oracle.reference_properties import (
    check_greedy_tokens,
    check_half_precision,
    check_oracles_agree,
    check_reference_bits,
    check_reference_logits,
    check_stopping,
    check_witness_logits,
)
from oracle.scenario import RequestSpec, Scenario
from refinfer.config import load_eos_token_ids
from refinfer.engine import loading

FEW = settings(max_examples=max(5, settings().max_examples // 4))
"""Each way of spoiling a record shows at once or never."""

LOGITS_CHECKS = {"float32": check_reference_logits, "float64": check_witness_logits}


def spoil(index, **changes):
    """A corruption of one request's record."""

    def corrupt(records):
        records = list(records)
        own = {name: change(getattr(records[index], name)) for name, change in changes.items()}
        records[index] = replace(records[index], **own)
        return records

    return corrupt


def changed_at(place, change):
    """Changes one element of a tuple or one row of logits."""

    def at(values):
        parts = list(values)
        parts[place] = change(parts[place])
        return torch.stack(parts) if isinstance(values, torch.Tensor) else tuple(parts)

    return at


def without(place):
    """Leaves one element or row out."""

    def at(values):
        parts = [value for index, value in enumerate(values) if index != place]
        return torch.stack(parts) if isinstance(values, torch.Tensor) else tuple(parts)

    return at


def doubled(place):
    """Gives one element or row twice."""

    def at(values):
        parts = list(values)
        parts.insert(place, parts[place])
        return torch.stack(parts) if isinstance(values, torch.Tensor) else tuple(parts)

    return at


def exchanged(first, second):
    """Exchanges two elements or rows."""

    def at(values):
        parts = list(values)
        parts[first], parts[second] = parts[second], parts[first]
        return torch.stack(parts) if isinstance(values, torch.Tensor) else tuple(parts)

    return at


@pytest.fixture(scope="session")
def draw_spoilable(scripted_case, scripted_requests):
    """Draws a scenario, one of its requests, and one place in that request's output."""

    def draw(data, *, dtype="float32", min_outputs=1):
        requests = data.draw(st.lists(scripted_requests, min_size=1, max_size=3), label="requests")
        scenario = Scenario(requests=tuple(requests), dtype=dtype, checkpoint=None)
        records = scripted_case(scenario).records("none")
        long_enough = [index for index, record in enumerate(records) if len(record.output_token_ids) >= min_outputs]
        assume(long_enough)
        index = data.draw(st.sampled_from(long_enough), label="request")
        place = data.draw(st.integers(0, len(records[index].output_token_ids) - 1), label="place")
        return scenario, index, place

    return draw


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@FEW
@given(data=st.data())
def test_right_records_pass_every_property(data, dtype, scripted_case, draw_spoilable):
    scenario, _, _ = draw_spoilable(data, dtype=dtype)
    case = scripted_case(scenario, lambda records: [replace(record) for record in records])
    for check in (check_oracles_agree, check_reference_bits, LOGITS_CHECKS[dtype], check_greedy_tokens, check_stopping):
        check(case, "none")


@FEW
@given(data=st.data())
def test_greedy_tokens_sees_a_changed_token_at_its_place(data, scripted_case, draw_spoilable):
    scenario, index, place = draw_spoilable(data)
    shift = data.draw(st.integers(1, 10), label="shift")
    change = changed_at(place, lambda token_id: (token_id + shift) % 11)
    with pytest.raises(TokenMismatch) as caught:
        check_greedy_tokens(scripted_case(scenario, spoil(index, output_token_ids=change)), "none")
    assert caught.value.row == place
    assert f"request {index}" in str(caught.value)


@FEW
@given(data=st.data())
def test_a_token_changed_together_with_its_scores_is_seen_by_scores_and_tokens(data, scripted_case, draw_spoilable):
    """The subject's own best is its token again, but neither is the reference's."""
    scenario, index, place = draw_spoilable(data)
    shift = data.draw(st.integers(1, 10), label="shift")
    corrupt = spoil(
        index,
        output_token_ids=changed_at(place, lambda token_id: (token_id + shift) % 11),
        logits=changed_at(place, lambda row: row.roll(shift)),
    )
    for check, mismatch in ((check_reference_logits, LogitsMismatch), (check_greedy_tokens, TokenMismatch)):
        with pytest.raises(mismatch) as caught:
            check(scripted_case(scenario, corrupt), "none")
        assert caught.value.row == place


@FEW
@given(data=st.data())
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_logits_checks_see_one_perturbed_score(data, dtype, scripted_case, draw_spoilable):
    scenario, index, place = draw_spoilable(data, dtype=dtype)
    token_id = data.draw(st.integers(0, 10), label="token_id")
    size = data.draw(st.sampled_from([1e-3, -1e-3, 1.0, -100.0]), label="size")
    perturbation = torch.zeros(11)
    perturbation[token_id] = size
    corrupt = spoil(index, logits=changed_at(place, lambda row: row + perturbation))
    with pytest.raises(LogitsMismatch) as caught:
        LOGITS_CHECKS[dtype](scripted_case(scenario, corrupt), "none")
    assert (caught.value.row, caught.value.token_id) == (place, token_id)


@FEW
@given(data=st.data())
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize(
    ("dtype", "check"),
    [
        ("float32", check_reference_logits),
        ("float64", check_witness_logits),
        ("bfloat16", check_half_precision),
        ("float32", check_greedy_tokens),
    ],
)
def test_every_check_of_logits_sees_a_value_that_is_not_finite(
    data, value, dtype, check, scripted_case, draw_spoilable
):
    scenario, index, place = draw_spoilable(data, dtype=dtype)
    corrupt = spoil(index, logits=changed_at(place, lambda row: torch.full_like(row, value)))
    with pytest.raises(MismatchError, match=f"row {place}") as caught:
        check(scripted_case(scenario, corrupt), "none")
    assert caught.value.row == place


@FEW
@given(data=st.data())
def test_stopping_sees_a_missing_last_token(data, scripted_case, draw_spoilable):
    scenario, index, _ = draw_spoilable(data, min_outputs=2)
    length = len(scripted_case(scenario).records("none")[index].output_token_ids)
    corrupt = spoil(index, output_token_ids=without(length - 1), logits=without(length - 1))
    with pytest.raises(OutcomeMismatch, match=f"request {index}: ended after {length - 1} tokens"):
        check_stopping(scripted_case(scenario, corrupt), "none")


@FEW
@given(data=st.data())
def test_stopping_sees_a_token_too_many(data, scripted_case, draw_spoilable):
    scenario, index, _ = draw_spoilable(data)
    length = len(scripted_case(scenario).records("none")[index].output_token_ids)
    corrupt = spoil(index, output_token_ids=doubled(length - 1), logits=doubled(length - 1))
    with pytest.raises(OutcomeMismatch, match=f"request {index}: ended after {length + 1} tokens"):
        check_stopping(scripted_case(scenario, corrupt), "none")


@FEW
@given(data=st.data())
def test_stopping_sees_another_reason(data, scripted_case, draw_spoilable):
    scenario, index, _ = draw_spoilable(data)
    right = scripted_case(scenario).records("none")[index].finish_reason
    reason = data.draw(st.sampled_from([reason for reason in ("stop", "length", "None") if reason != right]))
    with pytest.raises(OutcomeMismatch, match=f"for reason '{reason}'"):
        check_stopping(scripted_case(scenario, spoil(index, finish_reason=lambda _: reason)), "none")


@FEW
@given(data=st.data())
@pytest.mark.parametrize("change", [without, doubled], ids=["dropped", "doubled"])
@pytest.mark.parametrize("name", ["output_token_ids", "logits"])
def test_tokens_and_rows_that_differ_in_number_are_seen(data, change, name, scripted_case, draw_spoilable):
    scenario, index, place = draw_spoilable(data, min_outputs=2)
    corrupt = spoil(index, **{name: change(place)})
    for check in (check_reference_logits, check_greedy_tokens):
        with pytest.raises(MismatchError):
            check(scripted_case(scenario, corrupt), "none")


@FEW
@given(data=st.data())
def test_a_token_left_out_together_with_its_row_is_seen(data, scripted_case, draw_spoilable):
    """What follows it was computed after another prefix."""
    scenario, index, place = draw_spoilable(data, min_outputs=2)
    record = scripted_case(scenario).records("none")[index]
    assume(place < len(record.output_token_ids) - 1)
    assume(record.output_token_ids[place] != record.output_token_ids[place + 1])
    corrupt = spoil(index, output_token_ids=without(place), logits=without(place))
    with pytest.raises(LogitsMismatch) as caught:
        check_reference_logits(scripted_case(scenario, corrupt), "none")
    assert caught.value.row == place


@FEW
@given(data=st.data())
def test_two_exchanged_positions_are_seen_at_the_first(data, scripted_case, draw_spoilable):
    scenario, index, place = draw_spoilable(data, min_outputs=2)
    record = scripted_case(scenario).records("none")[index]
    other = data.draw(st.integers(0, len(record.output_token_ids) - 1), label="other")
    assume(record.output_token_ids[place] != record.output_token_ids[other])
    corrupt = spoil(index, output_token_ids=exchanged(place, other), logits=exchanged(place, other))
    for check in (check_reference_logits, check_greedy_tokens):
        with pytest.raises(MismatchError) as caught:
            check(scripted_case(scenario, corrupt), "none")
        assert caught.value.row == min(place, other)


@FEW
@given(data=st.data())
@pytest.mark.parametrize("check", [check_reference_logits, check_greedy_tokens, check_stopping, check_reference_bits])
def test_answers_handed_to_each_others_requests_are_seen(data, check, scripted_case, draw_spoilable):
    """Each record is right in itself; it belongs to another request."""
    scenario, index, _ = draw_spoilable(data)
    prompts = [request.prompt_token_ids for request in scenario.requests]
    other = data.draw(st.integers(0, len(prompts) - 1), label="other")
    assume(prompts[index] != prompts[other])
    with pytest.raises(OutcomeMismatch, match="another prompt"):
        check(scripted_case(scenario, lambda records: list(exchanged(index, other)(records))), "none")


@FEW
@given(data=st.data())
@pytest.mark.parametrize("change", [without, doubled], ids=["dropped", "doubled"])
def test_another_number_of_answers_than_of_requests_is_seen(data, change, scripted_case, draw_spoilable):
    scenario, index, _ = draw_spoilable(data)
    with pytest.raises(OutcomeMismatch, match="records"):
        check_stopping(scripted_case(scenario, lambda records: list(change(index)(records))), "none")


def test_stopping_sees_a_subject_that_knows_other_eos_token_ids(monkeypatch):
    """What ends a request stands in the checkpoint; the subject's own reading of it is in the dock as well."""
    monkeypatch.setattr(loading, "load_eos_token_ids", lambda _folder: (2,))
    spec = CheckpointSpec(num_layers=1, eos_token_ids=tuple(range(0, 131, 2)))
    requests = tuple(RequestSpec((token_id,), max_tokens=6) for token_id in range(5))
    with pytest.raises(OutcomeMismatch, match="expected"):
        check_stopping(Case(Scenario(requests=requests, checkpoint=spec)), "none")


@pytest.mark.parametrize("eos_token_ids", [(0,), (5,), (0, 5)])
def test_stopping_sees_an_id_that_the_subject_does_not_know_before_it_comes(eos_token_ids, monkeypatch):
    """Id 0 is an id like any other."""
    spec = CheckpointSpec(num_layers=1, eos_token_ids=eos_token_ids)
    scenario = Scenario(requests=(RequestSpec((1,), ignore_eos=True),), checkpoint=spec)
    check_stopping(Case(scenario), "none")
    read = load_eos_token_ids
    monkeypatch.setattr(loading, "load_eos_token_ids", lambda folder: read(folder)[1:])
    with pytest.raises(OutcomeMismatch, match=r"the ids that end a request are .*, and the checkpoint says"):
        check_stopping(Case(scenario), "none")


def test_reference_bits_refuses_the_smallest_difference(scripted_case, monkeypatch):
    scenario = Scenario(requests=(RequestSpec((1, 2, 3), max_tokens=3, ignore_eos=True),), checkpoint=None)
    case = scripted_case(scenario)
    original = case.subject("none").all_logits

    def off_by_one_bit(token_ids):
        rows = original(token_ids)
        rows[1, 4] = torch.nextafter(rows[1, 4], torch.tensor(torch.inf))
        return rows

    monkeypatch.setattr(case.subject("none"), "all_logits", off_by_one_bit)
    with pytest.raises(LogitsMismatch, match="row 1 of 6, token id 4"):
        check_reference_bits(case, "none")


def test_oracles_agree_refuses_a_broken_oracle(scripted_case, monkeypatch):
    """The noise bound grows with the oracles' distance, so that distance has a lid of its own."""
    scenario = Scenario(requests=(RequestSpec((1, 2, 3)),), checkpoint=None)
    case = scripted_case(scenario)
    witness = case.witness_logits
    monkeypatch.setattr(case, "witness_logits", lambda token_ids: witness(token_ids) + 1e-3)
    with pytest.raises(LogitsMismatch, match="reference against witness"):
        check_oracles_agree(case, "none")


@pytest.mark.parametrize("factor", [1.0, 1.9])
def test_half_precision_measures_both_errors(scripted_case, factor, monkeypatch):
    scenario = Scenario(requests=(RequestSpec((1, 2), max_tokens=4, ignore_eos=True),), dtype="bfloat16")
    case = scripted_case(scenario)
    reference = case.reference_logits

    def worse(token_ids, dtype=None):
        witness = case.witness_logits(token_ids)
        return witness + factor * (reference(token_ids, dtype) - witness)

    monkeypatch.setattr(case, "reference_logits", worse)
    observation = check_half_precision(case, "none")
    assert observation.subject_errors is not None
    assert observation.reference_errors is not None
    assert observation.subject_errors[2] == observation.reference_errors[2] == 44
    for own, theirs in zip(observation.subject_errors[:2], observation.reference_errors[:2], strict=True):
        assert theirs == pytest.approx(factor * own)


def test_half_precision_refuses_a_reference_that_overflows(scripted_case, monkeypatch):
    scenario = Scenario(requests=(RequestSpec((1, 2)),), dtype="float16", checkpoint=None)
    case = scripted_case(scenario)
    reference = case.reference_logits
    monkeypatch.setattr(case, "reference_logits", lambda token_ids: reference(token_ids) + float("inf"))
    with pytest.raises(LogitsMismatch, match="reference, request 0"):
        check_half_precision(case, "none")


@pytest.mark.parametrize(("max_tokens", "is_witnessed"), [(1, False), (2, True)])
def test_greedy_tokens_is_witnessed_by_a_second_token_only(scripted_case, max_tokens, is_witnessed):
    """The first token follows from the prompt alone, so that no cache has been read."""
    scenario = Scenario(requests=(RequestSpec((1, 2), max_tokens, ignore_eos=True),), checkpoint=None)
    assert check_greedy_tokens(scripted_case(scenario), "none").witnessed is is_witnessed


@pytest.mark.parametrize("ignore_eos", [True, False])
def test_stopping_is_witnessed_by_an_early_end_only(scripted_case, ignore_eos):
    """A prompt is searched for whose answer meets an end-of-sequence token soon."""
    requests = (RequestSpec((token_id,), 6, ignore_eos) for token_id in range(11))
    for request in requests:
        case = scripted_case(Scenario(requests=(request,), checkpoint=None))
        (record,) = case.records("none")
        has_stopped = record.finish_reason == "stop"
        assert check_stopping(case, "none").witnessed is has_stopped
        assert not (has_stopped and ignore_eos)
