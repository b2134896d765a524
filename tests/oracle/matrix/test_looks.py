"""Each way of looking sees what is about it alone: one thing is changed in a run that was right."""

from dataclasses import replace

import numpy as np
import pytest

from oracle.drive import Drive
from oracle.matrix.kills import RULES, SIGHTS
from oracle.matrix.looks import LOOKS, EndedRun, look_at
from oracle.sampling_spec import SamplingSpec
from oracle.scenario import RequestSpec, Scenario
from oracle.schedule_core import SYMBOLIC_TOKENIZER, requests_of, symbolic_core
from oracle.symbolic import EOS_TOKEN_IDS
from oracle.symbolic_check import symbolic_answers

pytestmark = pytest.mark.without_shape_checks

SCENARIO = Scenario(
    (
        RequestSpec((1, 2, 3), max_tokens=3, ignore_eos=True),
        RequestSpec((2, 2), max_tokens=3, ignore_eos=True, sampling=SamplingSpec(temperature=1.0, seed=4)),
    ),
    checkpoint=None,
    is_symbolic=True,
)


@pytest.fixture
def run():
    """A run of two requests, one of them drawn."""
    expected = symbolic_answers(SCENARIO)
    drive = Drive(symbolic_core(SCENARIO, "paged", expected), SCENARIO, requests_of(SCENARIO))
    drive.run()
    return EndedRun(drive, SCENARIO.requests, expected, EOS_TOKEN_IDS, SYMBOLIC_TOKENIZER, 6, "paged")


def seen(run):
    """The ways that say something."""
    return {name for name, _ in look_at(run, frozenset({*SIGHTS, *RULES}))}


def changed(run, place, **changes):
    """The run, beside another answer of one request alone."""
    expected = [list(samples) for samples in run.expected]
    sample = expected[place][0]
    rows = changes.pop("logits", sample.logits)
    expected[place][0] = replace(sample, output=replace(sample.output, **changes), logits=rows)
    return replace(run, expected=expected)


def test_right_run_is_seen_in_no_way(run):
    assert len(run.samples) == 2
    assert seen(run) == set()


@pytest.mark.parametrize(("place", "way"), [(0, "greedy"), (1, "seeded")])
def test_other_tokens_are_seen_by_how_they_were_chosen(run, place, way):
    tokens = run.expected[place][0].output.token_ids
    assert seen(changed(run, place, token_ids=[*tokens[:-1], (tokens[-1] + 1) % 16])) == {way}


def test_one_bit_of_logits_is_seen(run):
    first, *rest = run.expected[0][0].logits
    other = first.copy()
    other[0] = np.nextafter(other[0], np.inf)
    assert seen(changed(run, 0, logits=(other, *rest))) == {"bitwise"}


def test_another_reason_is_seen_as_a_promise(run):
    assert seen(changed(run, 0, finish_reason="stop")) == {"contract"}


def test_other_text_is_seen(run):
    assert seen(changed(run, 1, text="something else")) == {"text"}


def test_missing_answers_are_seen(run):
    assert seen(replace(run, expected=[run.expected[0], [*run.expected[1]] * 2])) == {"contract"}


def test_nan_is_poison(run):
    run.drive.driven[0].rows[0][0] = np.full(16, np.nan, dtype=np.float32)
    assert {"poison", "bitwise"} <= seen(run)


def test_draw_that_falls_elsewhere_is_seen(run):
    """Its token is another on both sides, as where a sampler is wrong that both share."""
    state = run.drive.driven[1].states[0]
    state.token_ids[-1] = (state.token_ids[-1] + 1) % 16
    tokens = run.drive.driven[1].answers[0].output().token_ids
    assert "distribution" in seen(changed(run, 1, token_ids=tokens))


def test_every_check_has_a_column():
    assert set(LOOKS) < set(SIGHTS)
