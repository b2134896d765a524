import pytest

from oracle.engine_spec import EngineSpec, StepScript
from oracle.explain.bookkeeping_signs import pointed_at
from oracle.scenario import RequestSpec, Scenario


@pytest.mark.parametrize(
    ("fault", "file"),
    [
        ("copy_on_write_left_out", "refinfer/scheduler/block_space.py"),
        ("copy_on_write_without_content", "refinfer/scheduler/block_space.py"),
        ("sharing_takes_no_reference", "refinfer/cache/block_pool.py"),
        ("chunk_counts_one_token_more", "refinfer/scheduler/queues.py"),
        ("outputs_lost_on_preemption", "refinfer/scheduler/queues.py"),
        ("newest_block_not_swapped", "refinfer/scheduler/block_space.py"),
        ("hit_counts_one_token_more", "refinfer/scheduler/block_space.py"),
        ("part_of_prompt_emits", "refinfer/scheduler/output.py"),
    ],
)
def test_first_sign_names_the_file_of_a_planted_bug(symbolic, watched, fault, file):
    signs = watched(symbolic, fault=fault).signs
    assert file in signs[0].suspect.sources, signs[0]


@pytest.mark.parametrize(
    ("message", "operation"),
    [
        ("block 3 has 1 references; tables and pins hold it 2 times", "counting references"),
        ("12 tokens run in one step, where 8 may", "the token budget"),
        ("requests run and wait in the order [0], and arrived in the order [1]", "the order of the queue"),
        ("request 0, sample 0, is to run, and is preempted", "whose turn it is"),
        ("request 0 is to run 0 tokens up to 2 of 2", "sharing what is computed, newest token included"),
        ("something that nobody foresaw", "its state between two steps"),
    ],
)
def test_broken_invariant_points_at_what_it_is_about(message, operation):
    assert pointed_at(message).operation == operation


def test_row_that_emits_before_all_of_its_tokens_have_run_is_seen(watched):
    """After a preemption the tokens that were emitted have to run again as well."""
    scenario = Scenario(
        (RequestSpec((1, 2, 3, 0), max_tokens=6, ignore_eos=True),),
        checkpoint=None,
        is_symbolic=True,
        engine=EngineSpec(block_size=4),
        script=(*(StepScript(),) * 3, StepScript(recompute=(0,)), StepScript(caps=(4,))),
    )
    assert watched(scenario).signs == []
    (sign, *_) = watched(scenario, fault="resumed_request_emits_early").signs
    assert sign.what == "request 0 emits a token when 4 of the 7 it has have run"
    assert sign.suspect.sources == ("refinfer/scheduler/output.py",)
