"""Everything that CI checks, in one command: format, lint, types, imports, tests.

`python check.py` needs the extra `dev`. What follows on the command line goes to pytest.
Every step runs, also after one that failed, so that one run shows everything.

`python check.py --low`, for the night: makes a fresh environment with the low end of every range in pyproject.toml,
and runs the whole test suite there. `.ci/run` does the same with the exact versions of constraints.txt.
"""

import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parent

TESTS = ["-m", "pytest", "-n", "2", "--dist", "worksteal"]

STEPS = {
    "format": ["-m", "ruff", "format", "--check", "."],
    "lint": ["-m", "ruff", "check", "."],
    "types": ["-m", "mypy"],
    "imports": ["-c", "import sys, importlinter.cli as c; sys.exit(c.lint_imports(no_cache=True, no_logo=True))"],
    "tests": TESTS,
}
"""What is run, by name and in this order: the tests last, so that their summary ends the output."""


def low_ends(pyproject: str) -> list[str]:
    """Return the low end of every range that the package and its tests need, as requirements of one version each."""
    project = tomllib.loads(pyproject)["project"]
    requirements = map(Requirement, [*project["dependencies"], *project["optional-dependencies"]["test"]])
    return [
        f"{requirement.name}=={part.version}"
        for requirement in requirements
        for part in requirement.specifier
        if part.operator == ">="
    ]


def run_at_low_ends(pytest_arguments: list[str]) -> int:
    """Run the test suite in a fresh environment of the oldest versions.

    Args:
        pytest_arguments: Handed on to pytest.

    Returns:
        The exit status: that of the first command that failed, or 0.
    """
    versions = low_ends((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder, "bin", "python")
        # All in one go: torch by its exact version, so that a wheel of it on this machine's disk is taken.
        commands = [
            ["-m", "pip", "install", "--quiet", *versions],
            ["-m", "pip", "install", "--quiet", "--no-deps", "--editable", "."],
            [*TESTS, *pytest_arguments],
        ]
        statuses = (subprocess.run([python, *command], cwd=ROOT, check=False).returncode for command in commands)
        return next(filter(None, statuses), 0)


def run_steps(pytest_arguments: list[str]) -> int:
    """Run every step and name those that failed.

    Args:
        pytest_arguments: Handed on to pytest.

    Returns:
        The exit status: 0 when every step passed.
    """
    failed = []
    for name, arguments in STEPS.items():
        sys.stdout.write(f"\n== {name}\n")
        sys.stdout.flush()
        more = pytest_arguments if name == "tests" else []
        if subprocess.run([sys.executable, *arguments, *more], cwd=ROOT, check=False).returncode:
            failed.append(name)
    if failed:
        sys.stdout.write(f"\nfailed: {', '.join(failed)}\n")
    return 1 if failed else 0


def main(arguments: list[str]) -> int:
    """Run the checks that the command line asks for; return the exit status."""
    if arguments[:1] == ["--low"]:
        return run_at_low_ends(arguments[1:])
    return run_steps(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
