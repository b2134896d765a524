from oracle.explain.recording import RowRecord, Written, key_of, name_of
from refinfer.sampling import SamplingParams
from refinfer.scheduler import Request, RequestState


def test_state_is_named_by_request_and_sample():
    state = RequestState(Request("3", None, (1,), SamplingParams(n=2)), sample_index=1)
    assert (key_of(state), name_of(state)) == ((3, 1), "3/1")


def test_row_knows_its_end_and_what_is_no_guess():
    row = RowRecord(0, 0, 0, 2, (1, 2, 3, 4), num_guessed=1)
    assert (row.end, row.num_known) == (4, 3)


def test_row_tells_how_it_came_to_the_block_of_a_position():
    row = RowRecord(0, 0, 0, 2, (1, 2, 3), origins=("prefix hit", "reserved"), block_size=2)
    assert [row.origin_of(position) for position in range(5)] == ["prefix hit"] * 2 + ["reserved"] * 2 + [None]


def test_written_token_stands_behind_its_prefix():
    assert Written(0, 0, 0, (5, 6, 7), None).position == 2


def test_row_knows_the_slots_of_what_runs():
    row = RowRecord(0, 0, 0, 1, (1, 2, 3, 4, 5), block_ids=(7, 2), block_size=2)
    assert row.slots == [15, 4, 5, None], "the last one lies past the table"
    assert RowRecord(0, 0, 0, 0, (1, 2)).slots == [None, None], "there is no pool"
