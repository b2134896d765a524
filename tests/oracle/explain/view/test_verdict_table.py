"""A table holds every verdict once, in the row of its check and the column of its mode."""

from oracle.explain.explanation import CheckFigure
from oracle.explain.view.verdict_table import verdict_table


def test_table_holds_every_verdict_in_its_place():
    failed = CheckFigure("order", "paged", "fail", "another token")
    table = verdict_table([CheckFigure("order", "none", "pass"), failed, CheckFigure("bits", "paged", "vacuous")])
    assert table.modes == ("none", "paged")
    assert table.rows == (
        ("order", ((("pass", 1),), (("fail", 1),))),
        ("bits", ((), (("vacuous", 1),))),
    )
    assert table.messages == (failed,)


def test_findings_of_one_check_are_counted():
    found = [CheckFigure("tokens", "engine", verdict, "m") for verdict in ("wrong", "tied", "wrong")]
    table = verdict_table(found)
    assert table.rows == (("tokens", ((("wrong", 2), ("tied", 1)),)),)
    assert table.messages == tuple(found)


def test_no_checks_give_an_empty_table():
    assert verdict_table([]).rows == ()
