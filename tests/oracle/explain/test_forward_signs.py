from dataclasses import replace

import pytest

from oracle.explain.clues import FirstOperation, FirstRead
from oracle.subjects import MODES


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("is_invariant", [True, False])
def test_right_run_shows_no_sign(schedule, watched, mode, is_invariant):
    run = watched(replace(schedule, batch_invariant=is_invariant), mode)
    assert run.signs == []
    assert run.error is None


@pytest.mark.parametrize(
    ("fault", "mode", "component", "operation"),
    [
        ("values_not_swapped", "paged", "cache", "swapping blocks"),
        ("values_not_copied", "paged", "cache", "copying blocks"),
        ("slot_of_newest_token_off_by_one", "paged", "cache", "reading and writing"),
        ("gathered_prefix_turned", "paged_gather", "cache", "reading and writing"),
        ("layers_share_a_cache", "continuous", "cache", "reading and writing"),
        ("chunk_positions_restart", "continuous", "runner", "the position ids of the step"),
        ("padding_attended", "static", "cache", "the attention layout"),
    ],
)
def test_first_sign_names_what_a_planted_bug_breaks(schedule, watched, fault, mode, component, operation):
    engine = replace(schedule.engine, enable_prefix_caching=False, placement_seed=3)
    requests = tuple(replace(request, arrival=0) for request in schedule.requests)
    signs = watched(replace(schedule, engine=engine, requests=requests), mode, fault).signs
    assert signs[0].suspect.component == component
    assert operation in (None, signs[0].suspect.operation)


def test_read_that_parts_says_when_it_was_written(schedule, watched):
    clue = watched(schedule, fault="values_not_swapped").signs[0].clue
    assert isinstance(clue, FirstRead)
    assert (clue.part, clue.is_bookkeeping) == ("value", False)
    assert clue.written_step is not None
    assert clue.place.step is not None
    assert clue.written_step < clue.place.step


def test_operation_that_depends_on_its_company_is_named(schedule, watched):
    signs = watched(schedule, "continuous", "attention_of_any_width").signs
    assert isinstance(signs[0].clue, FirstOperation)
    assert signs[0].clue.name == "model.layers.0.self_attn.per_head_output"
    assert "refinfer/numerics/invariant.py" in signs[0].suspect.sources
