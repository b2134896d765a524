import pytest

from oracle.case import Case
from oracle.drive import Drive
from oracle.explain.watch import Watch, extra_inputs
from oracle.schedule_core import model_core, requests_of


def test_watching_changes_no_token(schedule, watched):
    case = Case(schedule)
    drive = Drive(model_core(case.loaded(batch_invariant=True), schedule, "paged"), schedule, requests_of(schedule))
    drive.run()
    tokens = [[own.output.token_ids for own in driven.samples()] for driven in drive.driven]
    seen = watched(schedule).drive.driven
    assert [[own.output.token_ids for own in driven.samples()] for driven in seen] == tokens


def test_course_tells_arrivals_preemptions_and_blocks(schedule, watched):
    courses = [step.course for step in watched(schedule).steps]
    assert [course.number for course in courses if 1 in course.arrived] == [2]
    assert {entry.split()[1] for course in courses for entry in course.preempted} == {"swap", "recompute"}
    assert any(course.swapped_in for course in courses)
    assert any(course.copied_blocks for course in courses)
    assert sum(len(course.finished) for course in courses) == 3
    totals = {course.num_used_blocks + course.num_cached_blocks + course.num_free_blocks for course in courses}
    assert len(totals) == 1


def test_rows_show_every_module_and_every_layer_read(schedule, watched):
    row = watched(schedule).steps[0].rows[0]
    assert (row.start, row.end) == (0, 3)
    assert set(row.reads) == {0, 1}
    assert {"input_ids", "position_ids", "model.layers.1.self_attn.core", "model.layers.0.mlp.down_proj.input"} <= set(
        row.activations
    )


def test_watch_takes_symbolic_cores_too(symbolic, watched):
    run = watched(symbolic)
    assert run.signs == []
    assert not run.steps[0].rows[0].activations


def test_error_of_a_step_is_kept(schedule):
    case = Case(schedule)
    core = model_core(case.loaded(batch_invariant=True), schedule, "continuous")
    watch = Watch(core, case.loaded(batch_invariant=True).model, max_num_seqs=16, token_budget=None, is_policy=False)

    def fails(rows):
        raise RuntimeError(len(rows))

    watch._runs = (watch._runs[0], fails)
    drive = Drive(core, schedule, requests_of(schedule))
    with pytest.raises(RuntimeError) as caught:
        drive.run()
    assert watch.steps[0].error is caught.value
    assert len(watch.steps) == 1


def test_inputs_of_the_last_product_of_each_layer_are_kept(schedule):
    model = Case(schedule).loaded(batch_invariant=True).model
    assert "model.layers.1.mlp.down_proj" in extra_inputs(model)
