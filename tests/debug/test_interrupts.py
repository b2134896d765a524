"""A few calls stopped in each way of running; many are the script's own."""

import pytest

from debug import interrupts as script
from refinfer.engine.core import EngineCore
from refinfer.engine.statistics import Latencies
from refinfer.scheduler import RequestQueues

pytestmark = pytest.mark.without_shape_checks


@pytest.mark.parametrize("way", script.WAYS)
def test_calls_that_are_stopped_anywhere_lose_nothing_but_themselves(capsys, way):
    assert script.main(["--ways", way, "--places", "5"]) == 0
    assert f"{way}: add 1, step 1, abort 1, generate 1, stream 1 stopped; 0 wrong" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("owner", "name"),
    [(EngineCore, "recover"), (Latencies, "reset"), (RequestQueues, "reset")],
    ids=str,
)
def test_what_is_not_made_anew_is_seen(monkeypatch, capsys, owner, name):
    monkeypatch.setattr(owner, name, lambda *_: None)
    assert script.main(["--ways", "continuous", "--places", "10"]) == 1
    assert "stopped at /" in capsys.readouterr().out


def test_a_token_that_is_counted_before_it_can_be_kept_is_seen(monkeypatch, capsys):
    """The request moves on first, and is not brought back to what both it and its answer know."""
    monkeypatch.setattr("refinfer.engine.answer.Answer.recover", lambda *_: None)
    assert script.main(["--ways", "none", "--places", "30"]) == 1
    assert "where nobody is stopped" in capsys.readouterr().out


def test_interrupts_refuses_a_way_that_is_unknown(usage_error):
    assert "ways ['paper'] are unknown; there are none, static" in usage_error(script.main, "--ways", "paper")
