"""The pytest plugin: Hypothesis profiles by one option, and a header that tells which one runs.

It is inert unless `--oracle-profile` is given, and imports nothing heavy.
"""

import pytest
from hypothesis import HealthCheck, settings

PROFILES = {
    "quick": settings(
        max_examples=25,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    ),
    "ci": settings(
        max_examples=60,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    ),
    "deep": settings(max_examples=2000, deadline=None, suppress_health_check=[HealthCheck.too_slow]),
}
"""`quick` and `ci` draw the same cases every time, so that a red build is about the change; `deep` is random."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the option that chooses a profile."""
    group = parser.getgroup("oracle", "differential harness")
    group.addoption(
        "--oracle-profile",
        choices=tuple(PROFILES),
        default=None,
        help="how many cases Hypothesis draws: quick, ci (both always the same cases) or deep (large, random)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Loads the chosen profile."""
    profile = config.getoption("--oracle-profile")
    if profile is not None:
        settings.register_profile(f"oracle-{profile}", PROFILES[profile])
        settings.load_profile(f"oracle-{profile}")


def pytest_report_header(config: pytest.Config) -> str | None:
    """Tells which profile runs."""
    profile = config.getoption("--oracle-profile")
    if profile is None:
        return None
    return f"oracle: profile {profile}, {PROFILES[profile].max_examples} examples for each property"
