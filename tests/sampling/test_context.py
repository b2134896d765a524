"""What the tokens after the next one are drawn from."""

from refinfer.sampling import SampleContext, SamplingParams

CONTEXT = SampleContext(SamplingParams(seed=3), 3, 1, (5, 6), [7], frozenset({2}))


def test_context_goes_on_behind_its_output():
    expected = SampleContext(SamplingParams(seed=3), 3, 1, (5, 6), [7, 8, 9], frozenset({2}))
    assert CONTEXT.after([8, 9]) == expected
    assert CONTEXT.output_token_ids == [7], "the context itself stays"


def test_context_after_no_token_is_the_same():
    assert CONTEXT.after([]) is CONTEXT
