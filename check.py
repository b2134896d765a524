"""Everything that CI checks, in one command: format, lint, types, imports, tests.

`python check.py` needs the extra `dev`. What follows on the command line goes to pytest.
Every step runs, also after one that failed, so that one run shows everything.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent

STEPS = {
    "format": ["-m", "ruff", "format", "--check", "."],
    "lint": ["-m", "ruff", "check", "."],
    "types": ["-m", "mypy"],
    "imports": ["-c", "import sys, importlinter.cli as c; sys.exit(c.lint_imports(no_cache=True, no_logo=True))"],
    "tests": ["-m", "pytest", "-n", "2", "--dist", "worksteal"],
}
"""What is run, by name and in this order: the tests last, so that their summary ends the output."""


def main(pytest_arguments: list[str]) -> int:
    """Runs every step and names those that failed.

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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
