"""A short soak; the long one is the script's own."""

from debug import soak as script
from refinfer.engine.core import EngineCore
from refinfer.scheduler import BlockSpace


def test_short_soak_leaves_nothing_behind(capsys):
    """The log of steps is full after a thousand, so that what grows later is a leak."""
    assert script.main(["--steps", "3000", "--seed", "3"]) == 0
    shown = capsys.readouterr().out
    assert "3000 steps" in shown
    assert " 0 preemptions" not in shown


def test_soak_sees_what_is_kept_of_ended_requests(monkeypatch):
    kept = []
    finish = EngineCore._finish

    def keep(core, state, end):
        kept.append((state, core.answers[state]))
        finish(core, state, end)

    monkeypatch.setattr(EngineCore, "_finish", keep)
    assert script.main(["--steps", "3000"]) == 1
    assert kept


def test_soak_sees_blocks_that_are_lost(monkeypatch):
    monkeypatch.setattr(BlockSpace, "close", lambda *_: None)
    assert script.main(["--steps", "500"]) == 1
