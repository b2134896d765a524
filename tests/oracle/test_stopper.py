"""Where calls of an engine are stopped, and where not."""

import pytest

from oracle.stopper import Stopper
from refinfer import SamplingParams
from refinfer.scheduler import Request, RequestState

pytestmark = pytest.mark.without_shape_checks


def make_and_append():
    state = RequestState(Request("a", None, (1, 2), SamplingParams()))
    state.append(3)
    return state


def test_every_instruction_is_counted_and_each_can_be_the_last():
    counter = Stopper()
    with counter.watching():
        make_and_append()
    assert counter.num_seen > 20
    for place in range(0, counter.num_seen, max(1, counter.num_seen // 20)):
        stopper = Stopper(place, TimeoutError)
        with pytest.raises(TimeoutError), stopper.watching():
            make_and_append()
        assert stopper.num_seen == place + 1
        assert stopper.where.startswith("/s")


def test_nothing_stops_beyond_the_last_instruction_or_outside_the_block():
    stopper = Stopper(10**6)
    with stopper.watching():
        make_and_append()
    assert (make_and_append().num_tokens, stopper.where) == (3, "")
