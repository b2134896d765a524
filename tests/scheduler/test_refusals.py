"""Whatever the schedulers refuse comes with the values that the message shows."""

import pytest

from refinfer.errors import InvariantError, StatusTransitionError
from refinfer.sampling import FinishReason
from refinfer.scheduler import BlockSpace, ContinuousScheduler, RequestStatus

REFUSALS = {
    "end of one that never came": (
        lambda state: ContinuousScheduler(1).finish(state, FinishReason.ABORT),
        InvariantError,
        {"request_id": "a"},
    ),
    "move that there is not": (
        lambda state: state.move_to(RequestStatus.PREEMPTED),
        StatusTransitionError,
        {"request_id": "a", "status": RequestStatus.WAITING},
    ),
    "blocks of one that has none": (lambda state: BlockSpace(2, 2).close(state), InvariantError, {"request_id": "a"}),
}
"""By name: what is refused, the error, and the values that it has to give."""


@pytest.mark.parametrize("name", REFUSALS)
def test_refusal_gives_the_values_that_it_shows(name, make_state, refusal_of):
    action, kind, values = REFUSALS[name]
    found, found_values, message, _ = refusal_of(action, make_state())
    assert (found, found_values) == (kind, values)
    assert message not in ("", "None")


def test_no_refusal_is_left_out(make_state, refusal_of, refusals_in):
    assert {refusal_of(action, make_state())[3] for action, _, _ in REFUSALS.values()} == refusals_in(
        "refinfer.scheduler"
    )
