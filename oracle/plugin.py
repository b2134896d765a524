"""The pytest plugin: Hypothesis profiles by one option, and an engine in the dock by another.

It is inert unless one of its options is given, but for one line beside a failure that holds a case, and imports nothing
heavy until then.
"""

from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

HINT = "run it with --oracle-explain to be told why, and to have the case in a file for `python -m oracle replay`"

_CASES = {("oracle.scenario", "Scenario"), ("oracle.contract.scenario", "EngineScenario"), ("oracle.case", "Case")}
_CASES |= {("oracle.contract.outcome", "EngineReport")}
"""Types of a local variable that make a failure one of a case."""

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
    """Adds the options."""
    group = parser.getgroup("oracle", "differential harness")
    group.addoption(
        "--oracle-profile",
        choices=tuple(PROFILES),
        default=None,
        help="how much is drawn: quick, ci (both always the same cases) or deep (large, random)",
    )
    group.addoption(
        "--oracle-engine",
        default=None,
        metavar="NAME",
        help="the engine that `--pyargs oracle.suite` holds to its contract: a known name, MODULE:ATTRIBUTE or http://…",
    )
    group.addoption("--oracle-python", default=None, metavar="PATH", help="the Python in whose environment it lives")
    group.addoption("--oracle-known", default=None, metavar="FILE", help="its known deviations")
    group.addoption(
        "--oracle-explain",
        action="store_true",
        default=False,
        help="say beside a failure that holds a case why it fails, and write the case to oracle-failures",
    )
    group.addoption("--oracle-report", default=None, metavar="FILE", help="write what was seen of it there, as JSON")


def pytest_configure(config: pytest.Config) -> None:
    """Loads the chosen profile, and the fixtures of an engine in the dock where one is named."""
    profile = config.getoption("--oracle-profile")
    if profile is not None:
        settings.register_profile(f"oracle-{profile}", PROFILES[profile])
        settings.load_profile(f"oracle-{profile}")
    if config.getoption("--oracle-engine") is not None:
        config.pluginmanager.import_plugin("oracle.contract.option_fixtures")
    if config.getoption("--oracle-explain"):
        config.pluginmanager.import_plugin("oracle.explain.pytest_report")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Says beside a failure that holds a case how to be told why."""
    report = yield
    if report.failed and call.excinfo is not None and not item.config.getoption("--oracle-explain"):
        kinds = {type(value) for entry in call.excinfo.traceback for value in entry.frame.f_locals.values()}
        if any((kind.__module__, kind.__name__) in _CASES for kind in kinds):
            report.sections.append(("oracle", HINT))
    return report


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Tells which profile runs, and which engine is in the dock."""
    profile, engine = config.getoption("--oracle-profile"), config.getoption("--oracle-engine")
    lines = []
    if profile is not None:
        lines.append(f"oracle: profile {profile}, {PROFILES[profile].max_examples} examples for each property")
    if engine is not None:
        lines.append(f"oracle: {engine} is in the dock")
    return lines
