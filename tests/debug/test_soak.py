"""A short soak; the long one is the script's own."""

from debug import soak as script
from refinfer.engine.core import EngineCore
from refinfer.scheduler import BlockSpace


def test_short_soak_leaves_nothing_behind(capsys):
    assert script.main(["--steps", "600", "--seed", "3"]) == 0
    shown = capsys.readouterr().out
    assert "600 steps" in shown
    assert " 0 preemptions" not in shown


def test_soak_sees_what_is_kept_of_ended_requests(monkeypatch):
    kept = []
    finish = EngineCore._finish

    def keep(core, state, end):
        kept.append((state, core.answers[state]))
        finish(core, state, end)

    monkeypatch.setattr(EngineCore, "_finish", keep)
    assert script.main(["--steps", "600"]) == 1
    assert kept


def test_soak_sees_blocks_that_are_lost(monkeypatch):
    monkeypatch.setattr(BlockSpace, "close", lambda *_: None)
    assert script.main(["--steps", "100"]) == 1


def test_soak_refuses_to_take_no_step(usage_error):
    assert "--steps: 0 is not at least 1" in usage_error(script.main, "--steps", "0")
