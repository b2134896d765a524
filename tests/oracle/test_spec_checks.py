"""What no scenario can hold is refused by name."""

import pytest

from oracle.errors import ScenarioError
from oracle.spec_checks import are, check_choice, check_count, check_flag, check_ids, with_tuples


@pytest.mark.parametrize(
    ("check", "values"),
    [
        (check_ids, ("ids", (1, "2"))),
        (check_ids, ("ids", [1])),
        (check_count, ("count", 0)),
        (check_count, ("count", 1.5)),
        (check_count, ("count", 2, 3)),
        (check_flag, ("flag", 1)),
        (check_choice, ("choice", "c", ("a", "b"))),
    ],
)
def test_check_refuses_another_value(check, values):
    with pytest.raises(ScenarioError, match=f"{values[0]} is "):
        check(*values)


def test_checks_let_legal_values_pass():
    check_ids("ids", (1, 2))
    check_count("count", 0, 0)
    check_flag("flag", False)
    check_choice("choice", "a", ("a", "b"))
    assert are(str, ("a",))


def test_with_tuples_reaches_lists_in_lists():
    assert with_tuples([1, [2, [3]]]) == (1, (2, (3,)))
