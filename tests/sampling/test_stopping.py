"""When a request ends, and why."""

from hypothesis import example, given
from hypothesis import strategies as st

from refinfer.sampling import Finish, FinishReason, SamplingParams, can_stop, finish

STOP, LENGTH = FinishReason.STOP, FinishReason.LENGTH


def finish_reason(**facts):
    """The reason alone."""
    end = finish(**facts)
    return None if end is None else end.reason


def reason(token_id=5, *, judge=finish_reason, num_output_tokens=1, num_tokens=4, max_model_len=100, eos=(), **params):
    """The reason to end of a request that goes on unless the test says otherwise."""
    return judge(
        token_id=token_id,
        num_output_tokens=num_output_tokens,
        num_tokens=num_tokens,
        params=SamplingParams(**params),
        eos_token_ids=eos,
        max_model_len=max_model_len,
    )


def test_request_goes_on_while_nothing_ends_it():
    assert reason(eos={7}) is None


def test_request_stops_at_an_eos_token_even_as_the_first():
    assert reason(token_id=7, num_output_tokens=1, eos={7}) is STOP


def test_request_stops_at_each_of_several_eos_tokens():
    assert [reason(token_id=token_id, eos={0, 7, 9}) for token_id in (0, 7, 9, 8)] == [STOP, STOP, STOP, None]


def test_request_that_ignores_eos_goes_on():
    assert reason(token_id=7, eos={7}, ignore_eos=True) is None
    assert reason(token_id=7, eos={7}, ignore_eos=True, max_tokens=1) is LENGTH


def test_request_without_eos_ids_never_stops():
    assert reason(token_id=0) is None


def test_request_ends_with_its_last_permitted_token():
    assert [reason(num_output_tokens=count, max_tokens=3) for count in (1, 2, 3)] == [None, None, LENGTH]


def test_request_without_limit_goes_on_to_the_longest_length():
    assert [reason(num_tokens=count, max_tokens=None, max_model_len=6) for count in (4, 5, 6)] == [None, None, LENGTH]


def test_eos_as_the_last_permitted_token_is_a_stop():
    assert reason(token_id=7, eos={7}, max_tokens=1) is STOP
    assert reason(token_id=7, eos={7}, num_tokens=6, max_model_len=6) is STOP


def test_stop_token_is_told_and_eos_is_not():
    stops = {"eos": {7}, "stop_token_ids": [7, 9], "judge": finish}
    assert reason(token_id=9, **stops) == Finish(STOP, stop_reason=9)
    assert reason(token_id=7, **stops) == Finish(STOP, stop_reason=None)
    assert reason(token_id=7, ignore_eos=True, **stops) == Finish(STOP, stop_reason=7)
    assert reason(token_id=8, **stops) is None


def test_stop_token_zero_is_told():
    assert reason(token_id=0, stop_token_ids=[0], judge=finish) == Finish(STOP, stop_reason=0)


def test_a_limit_of_length_tells_no_token():
    assert reason(max_tokens=1, judge=finish) == Finish(LENGTH, stop_reason=None)
    assert reason(token_id=9, max_tokens=1, stop_token_ids=[9], judge=finish) == Finish(STOP, stop_reason=9)


def test_nothing_but_length_ends_a_request_before_min_tokens():
    for stops in ({"eos": {7}}, {"stop_token_ids": [7]}):
        reasons = [reason(token_id=7, num_output_tokens=count, min_tokens=2, **stops) for count in (1, 2, 3)]
        assert reasons == [None, None, STOP]
    assert reason(num_output_tokens=2, min_tokens=2, max_tokens=2) is LENGTH
    assert reason(num_output_tokens=1, min_tokens=2, num_tokens=100) is LENGTH


def test_can_stop_begins_after_min_tokens():
    assert [can_stop(count, SamplingParams(min_tokens=2)) for count in (1, 2, 3)] == [False, False, True]
    assert can_stop(1, SamplingParams())


def test_finish_reasons_are_the_words_that_callers_read():
    assert [str(member) for member in FinishReason] == ["stop", "length", "abort"]


@given(
    prompt_length=st.integers(1, 9),
    max_tokens=st.none() | st.integers(1, 9),
    max_model_len=st.integers(2, 12),
    tokens=st.lists(st.integers(0, 4), min_size=12, max_size=12),
    eos=st.sets(st.integers(0, 4)),
    ignore_eos=st.booleans(),
)
@example(prompt_length=1, max_tokens=1, max_model_len=2, tokens=[0] * 12, eos={0}, ignore_eos=False)
def test_request_ends_at_the_first_reason_that_applies(
    prompt_length, max_tokens, max_model_len, tokens, eos, ignore_eos
):
    prompt_length = min(prompt_length, max_model_len - 1)
    lengths = [max_model_len - prompt_length] + ([] if max_tokens is None else [max_tokens])
    expected = (min(lengths), LENGTH)
    for count, token_id in enumerate(tokens[: expected[0]], start=1):
        if token_id in eos and not ignore_eos:
            expected = (count, STOP)
            break
    reasons = [
        reason(
            token_id,
            num_output_tokens=count,
            num_tokens=prompt_length + count,
            max_model_len=max_model_len,
            eos=eos,
            max_tokens=max_tokens,
            ignore_eos=ignore_eos,
        )
        for count, token_id in enumerate(tokens, start=1)
    ]
    assert next((count, found) for count, found in enumerate(reasons, start=1) if found is not None) == expected
