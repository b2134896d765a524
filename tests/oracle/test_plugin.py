"""The plugin does nothing until it is asked, and then loads one profile and says so."""

import os
import re
import subprocess
import sys
import tomllib

import pytest

from oracle.plugin import HINT, PROFILES

SHOWS_SETTINGS = """
from hypothesis import settings

def test_settings():
    print("max_examples", settings().max_examples, "derandomize", settings().derandomize)
"""

SETTINGS_SHOWN = re.compile(r"max_examples \d+ derandomize \w+")

# Where this project is installed its entry point loads the plugin, which must not be loaded twice.
WITHOUT_PLUGIN = ("-p", "no:oracle")
WITH_PLUGIN = (*WITHOUT_PLUGIN, "-p", "oracle.plugin")


@pytest.fixture
def run_pytest(tmp_path):
    """Runs pytest on a test that shows the settings in force, in a project of its own; gives status and output."""

    def run(*arguments, plugin=WITH_PLUGIN):
        (tmp_path / "test_settings.py").write_text(SHOWS_SETTINGS, encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-s", *plugin, *arguments]
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    return run


def test_plugin_is_inert_without_its_option(run_pytest):
    # Hypothesis's own settings depend on the machine: it loads another profile where it sees a CI service.
    _, without = run_pytest(plugin=WITHOUT_PLUGIN)
    status, output = run_pytest()
    assert status == 0
    assert SETTINGS_SHOWN.findall(output) == SETTINGS_SHOWN.findall(without) != []
    assert "oracle:" not in output


def test_profile_is_loaded_and_named_in_the_header(run_pytest):
    status, output = run_pytest("--oracle-profile=quick")
    assert status == 0
    assert f"max_examples {PROFILES['quick'].max_examples} derandomize True" in output
    assert "oracle: profile quick, 25 examples for each property" in output


def test_plugin_refuses_a_profile_that_does_not_exist(run_pytest):
    status, output = run_pytest("--oracle-profile=huge")
    assert status == 4
    assert "invalid choice: 'huge'" in output


@pytest.mark.parametrize("name", ["quick", "ci"])
def test_profile_that_must_not_vary_draws_the_same_cases_every_time(name):
    assert PROFILES[name].derandomize
    assert PROFILES[name].database is None


def test_profiles_grow():
    assert PROFILES["quick"].max_examples < PROFILES["ci"].max_examples < PROFILES["deep"].max_examples


def test_no_profile_has_a_deadline():
    """A busy machine is no failure."""
    assert {profile.deadline for profile in PROFILES.values()} == {None}


def test_plugin_imports_neither_torch_nor_transformers():
    code = "import oracle.plugin, sys; print(*sorted({'torch', 'transformers', 'numpy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_installing_the_project_registers_the_plugin(request):
    project = tomllib.loads((request.config.rootpath / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["entry-points"]["pytest11"] == {"oracle": "oracle.plugin"}


HOLDS_A_CASE = """
from oracle.scenario import RequestSpec, Scenario

def test_case():
    scenario = Scenario(requests=(RequestSpec((1, 2)),), checkpoint=None, is_symbolic=True)
    assert not scenario.requests
"""


def test_failure_that_holds_a_case_says_how_to_be_told_why(run_pytest, tmp_path):
    (tmp_path / "test_case.py").write_text(HOLDS_A_CASE, encoding="utf-8")
    status, output = run_pytest()
    assert status == 1
    assert HINT in output
    status, output = run_pytest("--oracle-explain")
    assert status == 1
    assert HINT not in output
    assert "oracle: why it fails" in output
    assert "python -m oracle replay" in output
    assert (tmp_path / "oracle-failures" / "test-case-py-test-case.json").is_file()
