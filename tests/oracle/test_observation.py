"""What one check saw is added up: the largest difference stays, counts grow."""

from hypothesis import given
from hypothesis import strategies as st

from oracle.compare import TokenJudgement
from oracle.observation import Observation

COUNTS = st.integers(0, 100)
JUDGEMENTS = st.builds(TokenJudgement, COUNTS, COUNTS, COUNTS, st.floats(0, 10))


def test_new_observation_has_seen_no_difference():
    assert Observation().largest_difference is None


@given(differences=st.lists(st.floats(0, 1e6), min_size=1))
def test_observation_keeps_the_largest_difference(differences):
    observation = Observation()
    for difference in differences:
        observation.see_difference(difference)
    assert observation.largest_difference == max(differences)


@given(judgements=st.lists(JUDGEMENTS))
def test_observation_adds_up_judgements(judgements):
    observation = Observation()
    for judgement in judgements:
        observation.see_judgement(judgement)
    assert observation.num_positions == sum(judgement.num_positions for judgement in judgements)
    assert observation.num_exact_ties == sum(judgement.num_exact_ties for judgement in judgements)
    assert observation.num_near_ties == sum(judgement.num_near_ties for judgement in judgements)
