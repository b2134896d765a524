"""Requests without a model behind them."""

import pytest

from refinfer.sampling import SamplingParams
from refinfer.scheduler import Request, RequestState


@pytest.fixture
def make_state():
    """Makes the state of a new request; nothing reads its prompt."""

    def make(name):
        return RequestState(Request(str(name), None, (1,), SamplingParams()))

    return make
