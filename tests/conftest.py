"""What all tests share: shape checks switched on, no hub, and large tests on request only."""

import ast
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from importlib import import_module
from pathlib import Path

import jaxtyping
import numpy as np
import pytest
from hypothesis import settings

from oracle.plugin import PROFILES

CHECKED_PACKAGES = ["refinfer", "oracle"]

FAMILY_WISE_ERROR_RATE = 1e-6
"""How often a family of tests of drawn tokens would reject what is right."""

LOADED_BY_PYTEST = {"oracle", "oracle.plugin", "oracle.errors"}
"""What the pytest plugin imports before this file is read, and therefore goes unchecked."""

# No test asks a hub for anything; read when huggingface_hub is first imported.
os.environ["HF_HUB_OFFLINE"] = "1"

# Read when torch is first imported. On matrices as small as the tests', several threads wait for each other
# more than they compute, and on a machine that does something else as well ten times as long.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# jaxtyping's own pytest option refuses packages of which a part is loaded already,
# and the entry point of `oracle` has loaded a part.
loaded_too_early = {name for name in sys.modules if name.split(".")[0] in CHECKED_PACKAGES} - LOADED_BY_PYTEST
if loaded_too_early:
    message = f"loaded before the shape checks were on: {', '.join(sorted(loaded_too_early))}"
    raise pytest.UsageError(message)
jaxtyping.install_import_hook(CHECKED_PACKAGES, "beartype.beartype")


def pytest_configure(config: pytest.Config) -> None:
    """Takes the profile `ci` unless `--oracle-profile` names another: the same cases each time, and no deadlines."""
    if config.getoption("--oracle-profile", default=None) is None:
        settings.register_profile("oracle-ci", PROFILES["ci"])
        settings.load_profile("oracle-ci")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skips what takes many minutes unless `-m` speaks of its mark."""
    for mark in ("large", "real_model", "benchmark"):
        if mark in config.getoption("markexpr"):
            continue
        skip = pytest.mark.skip(reason=f"{mark}: opt in with `-m {mark}`")
        for item in items:
            if item.get_closest_marker(mark):
                item.add_marker(skip)


def pytest_runtest_setup() -> None:
    """Starts every test from the same random tensors, whatever ran before it."""
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


@pytest.fixture
def _without_shape_checks():
    """As outside of tests: what the shape checks would say, the code says itself."""
    with _shape_checks_off():
        yield


@pytest.fixture(scope="module", autouse=True)
def _without_shape_checks_in_marked_modules(request):
    """As outside of tests, in whole files that compare numbers at length: the checks would double their time."""
    is_marked = request.node.get_closest_marker("without_shape_checks") is not None
    with _shape_checks_off() if is_marked else nullcontext():
        yield


@contextmanager
def _shape_checks_off() -> Iterator[None]:
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", os.environ.get("JAXTYPING_DISABLE", "0"))


def g_test_p_value(counts, expected):
    """How likely counts at least as far from the expected ones are; a count where none can be is impossible.

    Cells that expect fewer than 5 are taken together, since the chi-square law is a limit for large cells.
    """
    counts, expected = np.asarray(counts, dtype=float), np.asarray(expected, dtype=float)
    if counts[expected == 0].any():
        return 0.0
    is_large = expected >= 5
    rest = expected[~is_large].sum()
    counts = np.append(counts[is_large], [counts[~is_large].sum()] if rest else [])
    expected = np.append(expected[is_large], [rest] if rest else [])
    if len(counts) == 1:
        return 1.0
    stats = import_module("scipy.stats")  # when it is needed: few tests draw
    return float(stats.power_divergence(counts, expected, lambda_="log-likelihood").pvalue)


def rejected(p_value_by_name):
    """The names that Holm's step-down method rejects at the family-wise error rate."""
    found = []
    for num_before, (name, p_value) in enumerate(sorted(p_value_by_name.items(), key=lambda entry: entry[1])):
        if p_value > FAMILY_WISE_ERROR_RATE / (len(p_value_by_name) - num_before):
            break
        found.append(name)
    return found


@pytest.fixture(scope="session", name="g_test_p_value")
def _g_test_p_value():
    """The p-value of counts against expected counts."""
    return g_test_p_value


@pytest.fixture(scope="session", name="rejected")
def _rejected():
    """Which names of a family of p-values are rejected, all at one family-wise error rate of one in a million."""
    return rejected


def refusal_of(action, *arguments):
    """What an action is refused with: type, values, message, and the file and line that raised it."""
    with pytest.raises(import_module("refinfer.errors").RefinferError) as caught:
        action(*arguments)
    place = caught.traceback[-1]
    return type(caught.value), caught.value.values, str(caught.value), (Path(place.path).name, place.lineno + 1)


def refusals_in(package):
    """The file and line of every `raise` of a package."""
    folder = Path(import_module(package).__path__[0])
    return {
        (file.name, node.lineno)
        for file in folder.glob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Raise)
    }


@pytest.fixture(scope="session", name="refusal_of")
def _refusal_of():
    """What a call is refused with: type, values, message and place."""
    return refusal_of


@pytest.fixture(scope="session", name="refusals_in")
def _refusals_in():
    """The places at which a package refuses something."""
    return refusals_in
