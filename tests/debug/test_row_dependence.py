"""The script counts what depends on company, and finds nothing where the invariant manner promises that."""

import re

from debug.row_dependence import main
from oracle.inspection.script import EXIT_USAGE

PROMISED = ("linear, packed weight", "linear, tiles of rows", "SiLU by exp", "RMSNorm", "attention in tiles")


def counts(output):
    """For each operation: in how many tries a bit changed, of how many."""
    found: dict[str, list[tuple[int, int]]] = {}
    for name, changed, tries in re.findall(r"│ (\S[^│]*?) +│[^│]*│ (\d+)/(\d+)", output):
        found.setdefault(name, []).append((int(changed), int(tries)))
    return found


def test_only_the_plain_manner_depends_on_company(capsys):
    assert main(["--dtypes", "float64"]) == 0
    found = counts(capsys.readouterr().out)
    assert all(not changed for name in PROMISED for changed, _ in found[name])
    assert all(tries for name in PROMISED[1:] for _, tries in found[name])
    assert sum(changed for changed, _ in found["linear of the library"] + found["attention of the library"])


def test_row_dependence_refuses_an_unknown_dtype(capsys):
    assert main(["--dtypes", "int8"]) == EXIT_USAGE
    assert "error: dtype 'int8' is unknown" in capsys.readouterr().err


def test_row_dependence_refuses_to_run_in_no_thread(usage_error):
    assert "--threads: 0 is not at least 1" in usage_error(main, "--threads", "0")
