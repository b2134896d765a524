"""Runs of a schedule, right and with a bug planted; explanations, made and drawn."""

from dataclasses import replace

import pytest
from hypothesis import strategies as st

from oracle.case import Case
from oracle.explain.clues import Blame, FirstOperation, FirstRead, FirstToken, FirstWrite, Place, Rung
from oracle.explain.course import HeatMap, Step, StepRow
from oracle.explain.explanation import CheckFigure, Explanation, Feature, Need
from oracle.explain.watched_run import watch_case, watch_symbolic
from oracle.faults import FAULTS


@pytest.fixture
def watched():
    """Watches a schedule in a mode, with a bug planted or none."""

    def run(scenario, mode="paged", fault=None):
        def watch():
            return watch_symbolic(scenario, mode) if scenario.is_symbolic else watch_case(Case(scenario), mode)

        if fault is None:
            return watch()
        with FAULTS[fault].planted():
            return watch()

    return run


STEPS = (
    Step(0, (StepRow(0, 0, 0, 3, 0, (7,)),), arrived=(0, 1), admitted=("0/0",), num_used_blocks=2, num_free_blocks=2),
    Step(1, (), preempted=("0/0 swap",), num_used_blocks=0, num_cached_blocks=1, num_free_blocks=3),
    Step(
        2,
        (StepRow(0, 0, 3, 3, 2, (8, 9)), StepRow(0, 1, 2, 1, 0, (6,)), StepRow(1, 0, 0, 2, 0, ())),
        admitted=("0/0", "0/1", "1/0"),
        swapped_in=("0/0",),
        copied_blocks=((1, 4),),
        num_used_blocks=4,
        num_cached_blocks=0,
        num_free_blocks=0,
    ),
    Step(3, (StepRow(0, 0, 5, 1, 0, (1,)),), finished=("0/0 length",), aborted=("0/1", "1/0"), num_used_blocks=1),
)

WHOLE = Explanation(
    kind="schedule",
    subject="paged",
    check="schedules",
    message="paged, request 0, sample 0: token_ids is (8,)",
    blame=Blame("cache", "swapping blocks", ("refinfer/cache/paged.py",), "cache: swapping blocks", ("swap", "n")),
    checks=(
        CheckFigure("schedules", "paged", "fail", "token_ids differ"),
        CheckFigure("schedules", "none", "pass"),
        CheckFigure("stopping", "none", "vacuous"),
    ),
    rungs=(
        Rung("token", is_reached=True, note=""),
        Rung("write", is_reached=True, note=""),
        Rung("read", is_reached=True, note=""),
        Rung("operation", is_reached=False, note="every operation follows"),
        Rung("features", is_reached=True, note=""),
    ),
    token=FirstToken(Place(2, 0, 0, 4), 1, "token", "8", "5", 0.2512345, 0.7512345, 0.00012345, "wrong"),
    write=FirstWrite(Place(0, 0, 0, 1, 0), "key", 0.5123456, 0.0123456, 2),
    read=FirstRead(Place(2, 0, 0, 1, 0), "value", 6.2162420, 0, "something else", is_bookkeeping=False),
    operation=None,
    features=(
        Feature("swap", Need.NEEDED, "preempted requests recompute"),
        Feature("batching", Need.NOT_NEEDED, "one request at a time"),
        Feature("aborts", Need.NOT_PRESENT, "no request is aborted"),
    ),
    minimal=("swap",),
    steps=STEPS,
    heat=(
        HeatMap(
            0,
            0,
            ("model.embed_tokens", "model.layers.0", "lm_head"),
            4,
            ((0.0,) * 4, (0.0, 3.5e-7, -1.0, None), (None, None, 2.5, 0.125)),
        ),
        HeatMap(1, 0, ("model.embed_tokens", "lm_head"), 2, ((0.0, 0.0), (None, 0.0))),
    ),
    scenario={"version": 4, "requests": [{"prompt_token_ids": [1, 2, 3]}, {"prompt_token_ids": [4, 5]}]},
    command="python -m oracle replay CASE.json --explain",
    survives_watching=True,
    seconds=1.5,
)

BARE = replace(
    WHOLE,
    kind="engine",
    subject="scripted 1.0",
    blame=Blame("unknown", "tokens", (), "tokens fails, and nothing shows why"),
    checks=(),
    rungs=tuple(replace(rung, is_reached=False, note=f"{rung.name} cannot be seen") for rung in WHOLE.rungs),
    token=None,
    write=None,
    read=None,
    features=(),
    minimal=None,
    steps=(),
    heat=(),
    survives_watching=None,
)

NUMBERS = st.integers(0, 40)
FLOATS = st.floats(0, 1e9) | st.sampled_from([0.0, 1e-300, float("nan"), float("inf")])
NAMES = st.text(min_size=1, max_size=12)


def maybe(strategy):
    """A value, or none."""
    return st.none() | strategy


@pytest.fixture(scope="session")
def whole():
    """An explanation with everything but a first operation."""
    return WHOLE


@pytest.fixture(scope="session")
def bare():
    """An explanation that found nothing."""
    return BARE


@pytest.fixture(scope="session")
def explanations():
    """Any explanation; every sample that befalls something is named as the harness names it."""
    places = st.builds(Place, maybe(NUMBERS), st.integers(0, 3), st.integers(0, 1), maybe(NUMBERS), maybe(NUMBERS))
    names = st.builds("{}/{}".format, st.integers(0, 3), st.integers(0, 1))
    reasons = st.builds("{} {}".format, names, st.sampled_from(["swap", "recompute", "length", "stop"]))
    rows = st.builds(StepRow, st.integers(0, 3), st.integers(0, 1), NUMBERS, st.integers(1, 9), st.just(0))
    rows = st.builds(lambda row, ids: replace(row, token_ids=tuple(ids)), rows, st.lists(NUMBERS, max_size=3))

    def some(strategy):
        return st.lists(strategy, max_size=3, unique=True).map(tuple)

    heat = st.builds(
        lambda request, rows: HeatMap(request, 0, tuple(f"row {n}" for n in range(len(rows))), 5, tuple(rows)),
        st.integers(0, 3),
        st.lists(st.tuples(*[maybe(st.floats(0, 1e9) | st.just(-1.0))] * 5), max_size=4),
    )
    step = st.builds(
        Step,
        st.just(0),
        st.lists(rows, max_size=3, unique_by=lambda row: (row.request, row.sample)).map(tuple),
        some(st.integers(0, 3)),
        some(names),
        some(reasons),
        some(names),
        some(reasons),
        some(names),
        some(st.tuples(NUMBERS, NUMBERS)),
        maybe(NUMBERS),
        maybe(NUMBERS),
        maybe(NUMBERS),
    )
    steps = st.lists(step, max_size=6).map(
        lambda drawn: tuple(replace(own, number=number) for number, own in enumerate(drawn))
    )
    return st.builds(
        Explanation,
        kind=st.sampled_from(["schedule", "symbolic", "engine"]),
        subject=NAMES,
        check=NAMES,
        message=st.text(max_size=40),
        blame=st.builds(Blame, NAMES, NAMES, some(NAMES), NAMES, some(NAMES)),
        checks=some(st.builds(CheckFigure, NAMES, NAMES, st.sampled_from(["pass", "fail", "vacuous"]), maybe(NAMES))),
        rungs=some(st.builds(Rung, st.sampled_from(["token", "write", "read", "operation"]), st.booleans(), NAMES)),
        token=maybe(
            st.builds(
                FirstToken,
                places,
                NUMBERS,
                NAMES,
                NAMES,
                NAMES,
                maybe(FLOATS),
                maybe(FLOATS),
                maybe(FLOATS),
                st.sampled_from(["wrong", "rounded", "tied"]),
            )
        ),
        write=maybe(st.builds(FirstWrite, places, st.sampled_from(["key", "value"]), FLOATS, FLOATS, maybe(NUMBERS))),
        read=maybe(
            st.builds(FirstRead, places, maybe(st.just("key")), maybe(FLOATS), maybe(NUMBERS), NAMES, st.booleans())
        ),
        operation=maybe(
            st.builds(FirstOperation, NAMES, places, FLOATS, FLOATS, some(NAMES), st.sampled_from(["alone", "witness"]))
        ),
        features=some(st.builds(Feature, NAMES, st.sampled_from(Need), NAMES)),
        minimal=maybe(some(NAMES)),
        steps=steps,
        heat=some(heat),
        scenario=st.just(WHOLE.scenario),
        command=NAMES,
        survives_watching=maybe(st.booleans()),
        seconds=st.floats(0, 100),
    )
