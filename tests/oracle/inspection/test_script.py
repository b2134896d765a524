"""Scripts end in one line where they cannot run, and print a width that does not hang on the terminal."""

import pytest

from oracle.errors import ScenarioError
from oracle.inspection.script import (
    EXIT_SHOWN,
    EXIT_USAGE,
    WIDTH,
    make_console,
    parser_of,
    run_script,
    save_picture,
    say,
)


def body(options, console):
    """Prints the case, or refuses it."""
    if options.case == "bad":
        message = "bad is no case"
        raise ScenarioError(message)
    say(console, f"[bold]{options.case}[/]")
    return EXIT_SHOWN


def test_run_script_gives_what_the_body_gives(capsys):
    assert run_script(body, parser_of("Does.", "python x.py"), ["a"]) == EXIT_SHOWN
    assert capsys.readouterr().out == "[bold]a[/]\n"


def test_run_script_says_an_error_in_one_line(capsys):
    assert run_script(body, parser_of("Does.", "python x.py"), ["bad"]) == EXIT_USAGE
    assert capsys.readouterr().err == "error: bad is no case\n"


def test_help_holds_the_example(capsys):
    with pytest.raises(SystemExit):
        run_script(body, parser_of("Does.", "python x.py CASE.json"), ["--help"])
    assert "example:\n  python x.py CASE.json" in capsys.readouterr().out


def test_width_is_the_same_wherever_there_is_no_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    assert make_console().width == WIDTH


def test_picture_is_written_only_where_one_is_wanted(tmp_path, capsys):
    save_picture(make_console(), None, lambda: pytest.fail("nobody wants it"))
    path = tmp_path / "a.svg"
    save_picture(make_console(), path, lambda: "<svg/>")
    assert path.read_text(encoding="utf-8") == "<svg/>"
    assert str(path) in capsys.readouterr().out.replace("\n", "")
