from oracle.explain.block_history import COPIED, FORKED, FOUND_AND_COPIED, HIT, RESERVED, SWAPPED_IN, BlockHistory
from refinfer.sampling import SamplingParams
from refinfer.scheduler import BlockSpace, ForgetBlocks, Request, RequestState, ScheduledRow, SwapIn


def test_every_way_of_coming_to_a_block_is_told(symbolic, watched):
    origins = {own for step in watched(symbolic).steps for row in step.rows for own in row.origins}
    assert {RESERVED, HIT, FORKED, SWAPPED_IN} <= origins | {COPIED, FOUND_AND_COPIED}
    assert {COPIED, FOUND_AND_COPIED} & origins


def test_tables_lead_to_the_requests_own_tokens(symbolic, watched):
    for step in watched(symbolic).steps:
        for row in step.rows:
            assert [own.prefix for own in row.kept] == [row.token_ids[: at + 1] for at in range(row.start)]


def test_operation_that_cannot_be_followed_is_told():
    history = BlockHistory(BlockSpace(2, 4))
    history.carry_out([ForgetBlocks((1,)), SwapIn("nobody", (0,))], 5)  # type: ignore[arg-type]
    assert history.forgotten == {1: 5}
    (words,) = history.lost
    assert words.startswith("SwapIn cannot be done")


def test_what_would_be_found_wrongly_is_told(symbolic, watched):
    signs = watched(symbolic, fault="part_of_block_published").signs
    assert signs[0].suspect.component == "prefix cache"


def test_content_and_origin_of_one_block_are_told():
    space = BlockSpace(2, 4, enable_prefix_caching=False)
    state = RequestState(Request("3", None, (5, 6, 7), SamplingParams()), sample_index=0)
    space.open(state)
    space.try_reserve(state, 3)
    history = BlockHistory(space)
    assert history.held_in(0) == [None] * 4
    assert history.origin_in_table(state, 0) is None, "it has not run"
    row = ScheduledRow.of(state, 3)
    history.origins(row)
    history.write(row, 1)
    assert [own and own.prefix[-1] for own in history.held_in(0)] == [5, 6, 7, None]
    assert history.origin_in_table(state, 0) == RESERVED
    assert history.origin_in_table(state, 1) is None
