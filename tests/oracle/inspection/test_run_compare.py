"""Runs of the same requests agree in every bit, and a planted bug parts them where it sits."""

from dataclasses import replace

import pytest

from oracle.inspection.likeness import Likeness
from oracle.inspection.run_compare import LOGITS, compare_runs
from oracle.inspection.watched import watch


@pytest.mark.parametrize("mode", ["none", "static", "continuous", "paged_gather"])
def test_modes_agree_in_every_bit_of_every_position(seen, schedule, mode):
    found = compare_runs(seen, watch(schedule, mode=mode))
    assert found.is_same
    assert {own.key: len(own.likeness) for own in found.samples} == {(0, 0): 11, (0, 1): 4, (1, 0): 4}


def test_symbolic_runs_are_compared_by_their_logits(symbolic):
    assert compare_runs(watch(symbolic, mode="paged"), watch(symbolic, mode="none")).is_same


@pytest.mark.parametrize(
    ("fault", "step", "name", "position"),
    [
        ("chunk_positions_restart", 1, "position_ids", 3),
        ("copied_backwards", 2, "model.layers.0.self_attn.per_head_output", 8),
        ("norm_epsilon", 0, "model.layers.0.input_layernorm", 0),
    ],
)
def test_first_difference_is_where_the_bug_sits(seen, schedule, fault, step, name, position):
    found = compare_runs(seen, watch(schedule, mode="paged", fault=fault))
    first = found.first_other
    assert first is not None
    assert (first.steps, first.name, first.position) == ((step, step), name, position)


def test_only_what_ran_behind_the_same_tokens_is_compared(seen, schedule):
    first, second = schedule.requests
    changed = replace(first, prompt_token_ids=(1, 2, 3, 4, 5, 6, 7, 9))
    found = compare_runs(seen, watch(replace(schedule, requests=(changed, second)), mode="paged"))
    sample = found.samples[0]
    assert sorted(sample.likeness) == list(range(7))
    assert sample.token is not None
    assert (sample.token.position, sample.token.output_place) == (7, -1)
    assert sample.token.token_ids == (8, 9)
    assert sample.count(Likeness.BITS) == 7


def test_token_that_parts_is_named_with_its_steps(seen, schedule):
    shorter = replace(schedule, requests=tuple(replace(own, max_tokens=2) for own in schedule.requests))
    found = compare_runs(seen, watch(shorter, mode="paged"))
    token = found.samples[0].token
    assert token is not None
    assert (token.output_place, token.position, token.steps) == (2, 10, (3, None))
    assert token.token_ids == (22, None)
    assert found.first_bit is None


def test_a_request_of_one_run_only_parts_in_its_first_token(seen, schedule):
    found = compare_runs(seen, watch(schedule.alone(0), mode="paged"))
    assert [own.key for own in found.samples] == [(0, 0), (0, 1), (1, 0)]
    assert not found.samples[2].likeness
    assert found.samples[2].ends == ("length", None)
    assert not found.is_same


def test_rounding_is_told_from_other_values(schedule):
    plain = replace(schedule, batch_invariant=False, script=())
    found = compare_runs(watch(plain, mode="none"), watch(plain, mode="paged"))
    assert found.first_other is None
    assert all(own.count(Likeness.OTHER) == 0 for own in found.samples)


def test_logits_of_the_symbolic_model_part_where_it_reads_something_else(symbolic):
    other = watch(symbolic, mode="paged", fault="swapped_back_in_other_order")
    first = compare_runs(watch(symbolic, mode="paged"), other).first_bit
    assert first is not None
    assert (first.name, first.key, first.position, first.steps) == (LOGITS, (1, 0), 6, (5, 5))
