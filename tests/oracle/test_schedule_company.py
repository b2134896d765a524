"""Schedules are bent towards what shows together only, often enough, and stay legal."""

from collections import Counter
from dataclasses import replace

import pytest

from oracle.choosers import RandomChooser, SimplestChooser
from oracle.faults.registry import Area, Fault, Replacement
from oracle.faults.schedule_hunt import hunt_schedules
from oracle.scenario import RequestSpec, Scenario
from oracle.schedule_company import bend
from oracle.schedule_core import num_blocks_of
from oracle.schedule_strategies import choose_symbolic_schedule
from oracle.schedule_witness import WitnessTable
from oracle.symbolic_check import run_symbolic
from refinfer.engine import answer
from refinfer.sampling import logits, sampler, stopping

pytestmark = pytest.mark.without_shape_checks

SIMPLEST = Scenario((RequestSpec((0, 1, 2)),), checkpoint=None, is_symbolic=True)
NUM_SCHEDULES = 300


def bent(*, has_text=True):
    choose = RandomChooser(0)
    return [bend(choose, SIMPLEST, has_text=has_text) for _ in range(NUM_SCHEDULES)]


def test_simplest_choice_bends_nothing():
    assert bend(SimplestChooser(), SIMPLEST, has_text=True) == SIMPLEST


def test_some_are_left_and_each_way_of_bending_comes_up():
    ways = Counter(
        "as it was"
        if scenario == SIMPLEST
        else "cut short"
        if scenario.engine.max_model_len_cut
        else "crowded"
        if len(scenario.requests) > 1 and scenario.max_num_seqs > 2
        else "one by one"
        if len(scenario.requests) > 1
        else "held"
        if scenario.requests[0].abort_step is not None
        else "paired"
        for scenario in bent()
    )
    assert set(ways) == {"as it was", "cut short", "crowded", "one by one", "held", "paired"}
    assert min(ways.values()) >= NUM_SCHEDULES // 20
    assert ways["as it was"] >= NUM_SCHEDULES // 4


def test_nothing_that_needs_text_is_asked_for_without_it():
    assert any(request.sampling.stop for scenario in bent() for request in scenario.requests)
    assert not any(request.sampling.stop for scenario in bent(has_text=False) for request in scenario.requests)


def test_crowds_are_taken_blocks_from_and_find_what_was_there():
    crowds = [scenario for scenario in bent() if len(scenario.requests) > 1]
    table = WitnessTable()
    for scenario in crowds:
        assert num_blocks_of(scenario) * scenario.engine.block_size < sum(
            len(request.prompt_token_ids) + request.max_tokens for request in scenario.requests
        )
        table.see(run_symbolic(scenario, "paged"))
    assert min(table.share(name) for name in ("preemption", "hit", "eviction")) > 0.2


def test_requests_end_by_the_longest_length():
    """Which no request does where that is the length of the longest."""
    choose, num_short = RandomChooser(0), 0
    for _ in range(NUM_SCHEDULES):
        scenario = choose_symbolic_schedule(choose)
        assert scenario.max_model_len > max(len(request.prompt_token_ids) for request in scenario.requests)
        for driven, spec in zip(run_symbolic(scenario, "paged").driven, scenario.requests, strict=True):
            num_short += sum(
                own.output.finish_reason == "length" and len(own.output.token_ids) < spec.max_tokens
                for own in driven.samples()
            )
    assert num_short >= NUM_SCHEDULES // 20


_process_logits = logits.process_logits


def process_with_bias_last(row, context):
    """Adds the bias after penalties."""
    processed = _process_logits(row, replace(context, params=replace(context.params, logit_bias=None)))
    bias = context.params.logit_bias
    return processed if bias is None else logits.add_logit_bias(processed, bias)


def abort_without_held_text(self):
    """Shows what the detokenizer held, and not what was held for a stop string."""
    if self._detokenizer is not None and not self._has_stopped:
        self._show(self._detokenizer.finish(), may_stop=False)


def can_stop_one_early(num_output_tokens, params):
    """Counts the token itself among those that have to come before it."""
    return num_output_tokens >= params.min_tokens


UNSEEN_BEFORE = {
    "edit_14": (
        Replacement(logits, "process_logits", process_with_bias_last),
        Replacement(sampler, "process_logits", process_with_bias_last),
    ),
    "edit_17": (Replacement(answer.Answer, "abort", abort_without_held_text),),
    "min_tokens_one_less": (
        Replacement(stopping, "can_stop", can_stop_one_early),
        Replacement(answer, "can_stop", can_stop_one_early),
    ),
}
"""Edits of the source that schedules did not see before they were bent; two of `notes/edits`, and one by hand."""


@pytest.mark.parametrize("seed", [0, 2])
@pytest.mark.parametrize("name", UNSEEN_BEFORE)
def test_edit_that_was_not_seen_is_seen(name, seed):
    fault = Fault(name, Area.SAMPLING, name, UNSEEN_BEFORE[name])
    catch = hunt_schedules(fault, num_schedules=NUM_SCHEDULES, seed=seed)
    run_symbolic(catch.scenario, "paged")
