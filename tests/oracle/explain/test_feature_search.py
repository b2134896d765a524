import time
from dataclasses import dataclass, replace

from oracle.errors import ScenarioError
from oracle.explain.explanation import Need
from oracle.explain.feature_search import FeatureSearch, Switch


@dataclass(frozen=True)
class Knobs:
    """A scenario of four switches."""

    chunks: bool = True
    shares: bool = True
    swaps: bool = True
    aborts: bool = False


def off(name):
    return Switch(name, f"no {name}", lambda own: replace(own, **{name: False}))


def impossible(own):
    message = f"{own} cannot do without it"
    raise ScenarioError(message)


SWITCHES = [off("chunks"), off("shares"), off("swaps"), off("aborts"), Switch("tokens", "none", impossible)]


def searched(fails, deadline=float("inf")):
    features, minimal = FeatureSearch(Knobs(), SWITCHES, fails, deadline=deadline).run()
    return {feature.name: feature.need for feature in features}, minimal


def test_feature_without_which_nothing_fails_is_needed():
    needs, minimal = searched(lambda own: own.chunks)
    assert needs == {
        "chunks": Need.NEEDED,
        "shares": Need.NOT_NEEDED,
        "swaps": Need.NOT_NEEDED,
        "aborts": Need.NOT_PRESENT,
        "tokens": Need.NOT_PRESENT,
    }
    assert minimal == ("chunks",)


def test_minimal_set_holds_one_of_two_that_do_as_well():
    needs, minimal = searched(lambda own: own.shares or own.swaps)
    assert Need.NEEDED not in needs.values()
    assert minimal == ("swaps",)


def test_search_stops_when_time_is_up():
    assert searched(lambda own: own.chunks, deadline=time.monotonic() - 1) == ({}, None)
