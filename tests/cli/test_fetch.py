"""`fetch` prints the folder, and nothing else, on standard output."""

import sys
from pathlib import Path

import pytest

from refinfer.cli.main import main

fetch_module = sys.modules["refinfer.cli.fetch"]


@pytest.fixture
def calls(monkeypatch):
    calls = []

    def fetch(name, *, verify, console):
        calls.append((name, verify))
        console.print("working")
        return Path("/cache/models/tiny")

    monkeypatch.setattr(fetch_module, "fetch", fetch)
    return calls


@pytest.mark.parametrize(("words", "verify"), [(["tiny"], False), (["tiny", "--verify"], True)])
def test_fetch_prints_the_folder(calls, capsys, words, verify):
    assert main(["fetch", *words]) == 0
    assert calls == [("tiny", verify)]
    assert capsys.readouterr() == ("/cache/models/tiny\n", "working\n")


def test_fetch_refuses_an_unknown_name(capsys):
    assert main(["fetch", "nothing"]) == 2
    assert capsys.readouterr() == ("", "refinfer: no model is known as 'nothing'; smollm2 can be fetched\n")
