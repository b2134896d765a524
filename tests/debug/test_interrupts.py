"""A few calls stopped in each way of running; many are the script's own."""

import pytest

from debug import interrupts as script
from refinfer.scheduler import RequestQueues

pytestmark = pytest.mark.without_shape_checks


@pytest.mark.parametrize("way", script.WAYS)
def test_calls_that_are_stopped_anywhere_lose_nothing_but_themselves(capsys, way):
    assert script.main(["--ways", way, "--places", "5"]) == 0
    assert f"{way}: add 1, step 1, abort 1, generate 1, stream 1 stopped; 0 wrong" in capsys.readouterr().out


@pytest.mark.parametrize(("way", "part"), [("continuous", RequestQueues), ("paged", RequestQueues)])
def test_part_that_is_not_made_anew_is_seen(monkeypatch, capsys, way, part):
    monkeypatch.setattr(part, "reset", lambda *_: None)
    assert script.main(["--ways", way, "--places", "10"]) == 1
    assert "stopped at /" in capsys.readouterr().out


def test_interrupts_refuses_a_way_that_is_unknown(usage_error):
    assert "ways ['paper'] are unknown; there are none, static" in usage_error(script.main, "--ways", "paper")
