"""The list of what must hold, and how a check of one ends."""

from collections import Counter

import pytest

from oracle.errors import CheckFailed, InsensitiveModelError, LogitsMismatch, ReferenceUnavailable, ScenarioError
from oracle.observation import Observation
from oracle.properties import ALL_DTYPES, MODES_BUT_GATHER, PROPERTIES, Property, observe
from oracle.scenario import DTYPES, RequestSpec, Scenario
from oracle.subjects import MODES

SCENARIO = Scenario(requests=(RequestSpec((1, 2)),), checkpoint=None)


def raising(error):
    """A property that raises."""

    def check(case, mode):
        del case, mode
        raise error

    return Property("bad", "Does it hold?", check)


def test_names_are_unique():
    assert max(Counter(prop.name for prop in PROPERTIES).values()) == 1


@pytest.mark.parametrize("prop", PROPERTIES, ids=lambda prop: prop.name)
def test_property_asks_a_question_about_known_modes_and_dtypes(prop):
    assert prop.question.endswith("?")
    assert set(prop.modes) <= set(MODES)
    assert set(prop.dtypes) <= set(DTYPES)
    assert prop.modes
    assert prop.dtypes


def test_every_mode_is_held_to_the_reference_in_every_dtype():
    """But for the second reader of the paged cache, which is held to the bits of the first."""
    for mode in MODES_BUT_GATHER:
        dtypes = {
            dtype
            for prop in PROPERTIES
            if prop.name in ("reference_logits", "witness_logits", "half_precision") and mode in prop.modes
            for dtype in prop.dtypes
        }
        assert dtypes == set(ALL_DTYPES) == set(DTYPES)


def test_observe_gives_what_a_property_saw(scripted_case):
    prop = Property("good", "Does it hold?", lambda _case, mode: Observation(num_positions=len(mode)))
    assert observe(prop, scripted_case(SCENARIO), "none").num_positions == 4


def test_observe_gives_the_message_of_a_mismatch(scripted_case):
    with pytest.raises(CheckFailed) as caught:
        observe(raising(LogitsMismatch("too far")), scripted_case(SCENARIO), "none")
    assert str(caught.value) == "too far"
    assert isinstance(caught.value.__cause__, LogitsMismatch)


def test_observe_names_the_type_of_any_other_error(scripted_case):
    with pytest.raises(CheckFailed, match="AttributeError: no such thing"):
        observe(raising(AttributeError("no such thing")), scripted_case(SCENARIO), "none")


@pytest.mark.parametrize("error_type", [ReferenceUnavailable, InsensitiveModelError, ScenarioError])
def test_observe_blames_no_subject_for_what_the_harness_lacks(error_type, scripted_case):
    with pytest.raises(error_type, match="lacking"):
        observe(raising(error_type("lacking")), scripted_case(SCENARIO), "none")


def test_observe_lets_an_interruption_through(scripted_case):
    with pytest.raises(KeyboardInterrupt):
        observe(raising(KeyboardInterrupt()), scripted_case(SCENARIO), "none")
