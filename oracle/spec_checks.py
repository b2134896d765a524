"""Which values may stand in a scenario? What its parts share when they check themselves."""

from typing import Any

from oracle.errors import ScenarioError


def are(kind: type, values: object) -> bool:
    """Tells whether something is a tuple of values of one type."""
    return isinstance(values, tuple) and all(isinstance(value, kind) for value in values)


def check_ids(name: str, values: object) -> None:
    """Refuses what is no tuple of whole numbers.

    Raises:
        ScenarioError: It is not.
    """
    if not are(int, values):
        message = f"{name} is {values!r}; it must hold whole numbers"
        raise ScenarioError(message, name=name)


def check_count(name: str, value: object, least: int = 1) -> None:
    """Refuses what is no whole number of at least so many.

    Raises:
        ScenarioError: It is not.
    """
    if not isinstance(value, int) or value < least:
        message = f"{name} is {value!r}; it must be a whole number of at least {least}"
        raise ScenarioError(message, name=name)


def check_flag(name: str, value: object) -> None:
    """Refuses what is neither true nor false.

    Raises:
        ScenarioError: It is not.
    """
    if not isinstance(value, bool):
        message = f"{name} is {value!r}; it must be true or false"
        raise ScenarioError(message, name=name)


def check_choice(name: str, value: object, choices: tuple[object, ...]) -> None:
    """Refuses what is none of some choices.

    Raises:
        ScenarioError: It is not.
    """
    if value not in choices:
        message = f"{name} is {value!r}; it must be one of {', '.join(map(repr, choices))}"
        raise ScenarioError(message, name=name)


def with_tuples(value: Any) -> Any:
    """Gives what JSON read with tuples for its lists: JSON has lists only, and frozen values have tuples."""
    return tuple(with_tuples(item) for item in value) if isinstance(value, list) else value
