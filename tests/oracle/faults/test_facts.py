"""What faults say of themselves is in known words, names files that exist, and covers areas and pairs of features."""

import re
from collections import Counter
from pathlib import Path
from typing import get_args

import pytest

import refinfer
from oracle.faults import FAULTS, NO_OP_FAULTS, SCHEDULE_FAULTS, Area
from oracle.faults.facts import Need, Sight

ISSUE = re.compile(r"[\w.-]+/[\w.-]+#\d+ \(\d+\.\d\d\)")
FALSE_ALARM = re.compile(r"[\w.-]+/[\w.-]+#\d+ \(a false alarm\)")

SOURCES = Path(refinfer.__file__).parent

LEAST_FAULTS = 155
LEAST_OF_AN_AREA = 3
LEAST_OF_TWO_FEATURES = 70


def test_there_are_enough_faults_under_names_of_their_own():
    assert len(FAULTS) >= LEAST_FAULTS
    assert len(NO_OP_FAULTS) >= 20
    assert not set(FAULTS) & set(NO_OP_FAULTS)
    sentences = Counter(fault.bug for fault in (*FAULTS.values(), *NO_OP_FAULTS.values()))
    assert max(sentences.values()) == 1


def test_no_area_has_but_one_or_two_faults():
    num_by_area = Counter(fault.area for fault in FAULTS.values())
    assert {area: num_by_area[area] for area in Area if num_by_area[area] < LEAST_OF_AN_AREA} == {}


def test_many_faults_need_two_features_at_once():
    pairs = {name for name, fault in FAULTS.items() if len(fault.needs) > 1}
    assert len(pairs) >= LEAST_OF_TWO_FEATURES


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_facts_of_a_fault_are_in_known_words(fault):
    assert fault.seen_by
    for words, known in ((fault.needs, get_args(Need)), (fault.seen_by, get_args(Sight))):
        assert set(words) <= set(known)
        assert len(set(words)) == len(words)


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_component_of_a_fault_is_a_source_file(fault):
    assert fault.component
    assert [path for path in fault.component if not (SOURCES / path).is_file()] == []


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_fault_models_public_issues_or_is_our_own(fault):
    assert fault.models is None or (fault.models and all(map(ISSUE.fullmatch, fault.models)))


def test_most_faults_model_public_issues():
    assert sum(fault.models is not None for fault in FAULTS.values()) > len(FAULTS) / 2


@pytest.mark.parametrize("words", [Need, Sight], ids=["needs", "sights"])
def test_no_word_is_known_that_no_fault_uses(words):
    used = {word for fault in (*FAULTS.values(), *NO_OP_FAULTS.values()) for word in (*fault.needs, *fault.seen_by)}
    assert set(get_args(words)) <= used


@pytest.mark.parametrize("fault", NO_OP_FAULTS.values(), ids=NO_OP_FAULTS)
def test_fault_that_is_none_is_seen_by_nothing_and_sits_nowhere(fault):
    assert (fault.seen_by, fault.component) == ((), ())
    assert fault.models is None or all(map(FALSE_ALARM.fullmatch, fault.models))
    assert set(fault.needs) <= set(get_args(Need))


def test_fault_of_guesses_is_known_by_what_it_needs():
    """Schedules guess where a fault says that it needs it."""
    of_guesses = {name for name in SCHEDULE_FAULTS if FAULTS[name].area is Area.SPECULATIVE}
    assert [name for name in of_guesses if "speculation" not in FAULTS[name].needs] == []
