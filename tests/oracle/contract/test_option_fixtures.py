"""An engine that an option names is judged once, and what was seen is written where an option says."""

import json

import pytest

from oracle.contract import option_fixtures
from oracle.contract.findings import Findings
from oracle.contract.outcome import EngineReport
from oracle.engines.declaration import EngineDeclaration


def options_of(**values):
    """What pytest's configuration gives for an option."""
    return lambda name: values.get(name.removeprefix("--").replace("-", "_"))


@pytest.fixture
def calls(monkeypatch):
    """What was asked of the functions behind the fixture."""
    asked = {}

    def open_engine(name, *, python):
        asked["engine"] = (name, python)
        return "an engine"

    def check_engine(engine, **options):
        asked["check"] = (engine, options)
        return EngineReport(EngineDeclaration("scripted"), findings=Findings())

    monkeypatch.setattr(option_fixtures, "open_engine", open_engine)
    monkeypatch.setattr(option_fixtures, "check_engine", check_engine)
    return asked


def test_report_follows_the_options(calls, tmp_path):
    path = tmp_path / "report.json"
    options = options_of(oracle_engine="vllm", oracle_python="py", oracle_known="known.json", oracle_report=str(path))
    report = option_fixtures.report_of(options)
    assert report.declaration.name == "scripted"
    assert calls == {"engine": ("vllm", "py"), "check": ("an engine", {"known": "known.json", "profile": "quick"})}
    assert json.loads(path.read_text("utf-8"))["engine"]["name"] == "scripted"


def test_report_is_written_nowhere_unless_told(calls, tmp_path):
    option_fixtures.report_of(options_of(oracle_engine="vllm", oracle_profile="ci"))
    assert calls["check"][1]["profile"] == "ci"
    assert list(tmp_path.iterdir()) == []
