"""How commands end: with a status, and with one clean line if they cannot do what was asked."""

import pytest

from refinfer.cli import main as main_of_package
from refinfer.cli.main import main
from refinfer.errors import CheckpointError

main_module = __import__("sys").modules["refinfer.cli.main"]


@pytest.fixture
def command(monkeypatch):
    """Lets `fetch` do what a test wants."""

    def replace(error):
        def add_fetch(commands):
            def run(_):
                if error is not None:
                    raise error

            commands.add_parser("fetch").set_defaults(run=run)

        monkeypatch.setattr(main_module, "add_fetch", add_fetch)

    return replace


def test_main_gives_0_when_all_is_well(command, capsys):
    command(None)
    assert main(["fetch"]) == 0
    assert capsys.readouterr() == ("", "")


def test_main_shows_an_error_of_ours_as_one_line(command, capsys):
    command(CheckpointError("the file\nis broken; take another"))
    assert main(["fetch"]) == 2
    assert capsys.readouterr() == ("", "refinfer: the file is broken; take another\n")


def test_main_gives_130_after_an_interrupt(command, capsys):
    command(KeyboardInterrupt())
    assert main(["fetch"]) == 130
    assert capsys.readouterr() == ("", "refinfer: interrupted\n")


def test_main_lets_a_bug_show_itself(command):
    """What is no error of ours is not the user's doing, and its traceback is wanted."""
    command(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        main(["fetch"])


@pytest.mark.parametrize("words", [[], ["unknown"], ["fetch"], ["generate", "hello"], ["generate", "--model"]])
def test_main_gives_2_for_words_it_does_not_know(words, capsys):
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 2
    assert "usage: python -m refinfer" in capsys.readouterr().err


def test_main_tells_its_version(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out.startswith("refinfer ")


def test_main_is_offered_by_the_package():
    assert main_of_package is main
