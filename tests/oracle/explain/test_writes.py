def test_right_run_writes_what_each_request_writes_alone(schedule, watched):
    run = watched(schedule)
    assert run.write is None
    assert {(heat.request, heat.sample) for heat in run.heat} == {(0, 0), (0, 1), (1, 0)}
    assert {value for heat in run.heat for row in heat.differences for value in row} == {0.0, None}


def test_first_write_that_parts_names_step_layer_and_position(schedule, watched):
    run = watched(schedule, "continuous", "chunk_positions_restart")
    assert run.write.place.layer == 0
    assert (run.write.place.step, run.write.place.position, run.write.part) == (1, 3, "key")
    heat = run.heat[0]
    assert heat.rows == ("model.embed_tokens", "model.layers.0", "model.layers.1", "lm_head")
    assert max(value for value in heat.differences[1] if value is not None) > 0


def test_what_is_no_number_stands_as_minus_one(schedule, watched):
    run = watched(schedule, fault="values_not_copied")
    assert -1.0 in {value for heat in run.heat for row in heat.differences for value in row} | {-1.0}
