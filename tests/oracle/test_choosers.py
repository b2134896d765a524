"""Both choosers make legal choices; the seeded one makes the same each time."""

import pytest
from hypothesis import find, given
from hypothesis import strategies as st

from oracle.choosers import HypothesisChooser, RandomChooser, SimplestChooser


def choices(choose):
    return choose.one_of("abc"), list(choose.items(4, least=1)), choose.token_ids(3, 5)


@given(data=st.data(), seed=st.integers(0, 99))
@pytest.mark.parametrize("kind", ["hypothesis", "random"])
def test_choices_are_legal(kind, data, seed):
    one, items, token_ids = choices(HypothesisChooser(data.draw) if kind == "hypothesis" else RandomChooser(seed))
    assert one in "abc"
    assert items in ([0], [0, 1], [0, 1, 2], [0, 1, 2, 3])
    assert 1 <= len(token_ids) <= 5
    assert set(token_ids) <= {0, 1, 2}


def test_the_same_seed_makes_the_same_choices():
    assert [choices(RandomChooser(seed)) for seed in range(5)] == [choices(RandomChooser(seed)) for seed in range(5)]
    assert len({str(choices(RandomChooser(seed))) for seed in range(20)}) > 10


def test_hypothesis_shrinks_to_the_first_options():
    drawn = st.composite(lambda draw: choices(HypothesisChooser(draw)))()
    assert find(drawn, lambda _: True) == ("a", [0], (0,))


def test_choices_aside_move_no_others():
    with_aside, without = RandomChooser(3), RandomChooser(3)
    first = choices(with_aside)
    drawn = [choices(with_aside.aside()) for _ in range(20)]
    assert (first, choices(with_aside)) == (choices(without), choices(without))
    assert len(set(map(str, drawn))) > 10
    assert drawn == [choices(without.aside()) for _ in range(20)]


def test_hypothesis_leaves_what_is_chosen_aside_at_its_simplest():
    drawn = st.composite(lambda draw: choices(HypothesisChooser(draw).aside()))()
    assert find(drawn, lambda _: True) == choices(SimplestChooser()) == ("a", [0], (0,))
    assert choices(SimplestChooser().aside()) == ("a", [0], (0,))
