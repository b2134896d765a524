"""Requests without a model behind them."""

import pytest

from refinfer.sampling import SamplingParams
from refinfer.scheduler import Request, RequestState


@pytest.fixture
def make_state():
    """Makes the state of a new request; its tokens are its own unless they are given."""

    def make(name="a", prompt=(1,), **params):
        return RequestState(Request(str(name), None, tuple(prompt), SamplingParams(**params)))

    return make


@pytest.fixture
def run_step():
    """Schedules, and runs what was scheduled: each request whose tokens have all run gets a token."""

    def run(scheduler, token_id=0):
        output = scheduler.schedule()
        emitting = [row.state for row in output.rows if row.emits]
        scheduler.advance(output.rows)
        for state in emitting:
            state.append(token_id)
        return [(row.state, row.num_scheduled_tokens) for row in output.rows]

    return run
