"""A digest of each row of logits, written line by line, so that two runs can be held against each other.

Two runs of the same cases can differ in threads, versions or machine; the first line that parts names the
case, mode, request and row. Bits are promised for one instruction set, so the file says which one it was.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import takewhile, zip_longest
from pathlib import Path
from types import TracebackType

import torch
from jaxtyping import Float
from torch import Tensor

from oracle.errors import DigestFileError
from oracle.report import environment
from oracle.scenario import Scenario
from oracle.subjects import RequestRecord

_FIRST_LINE = "# refinfer digests 1"


def digest(row: Float[Tensor, " vocab"]) -> str:
    """Gives 16 hexadecimal digits that follow from the bits of a row; zeros of both signs count as one."""
    positive_zeros = (row + 0).contiguous()
    return hashlib.sha256(positive_zeros.view(torch.uint8).numpy().tobytes()).hexdigest()[:16]


class DigestWriter:
    """Writes digests to a file, under a head that says where they were computed.

    Args:
        path: The file; one that is there is replaced.
        seed: Seed of the cases.
    """

    def __init__(self, path: Path, seed: int) -> None:
        self._file = path.open("w", encoding="utf-8")
        self.write([_FIRST_LINE, f"# seed {seed}", *(f"# {name} {value}" for name, value in environment().items())])

    def __enter__(self) -> "DigestWriter":  # noqa: PYI034 - the shape checks cannot read `Self`
        """Gives itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Closes the file."""
        self._file.close()

    def write(self, lines: Iterable[str]) -> None:
        """Writes lines that `row_lines` and `error_line` have made."""
        self._file.writelines(f"{line}\n" for line in lines)


def row_lines(case_index: int, scenario: Scenario, mode: str, records: Iterable[RequestRecord]) -> Iterator[str]:
    """Gives a line for each emitted token of one run."""
    run = _name_of_run(case_index, scenario, mode)
    for index, record in enumerate(records):
        for place, row in enumerate(record.logits):
            yield f"{run} request {index} row {place} {digest(row)}"


def error_line(case_index: int, scenario: Scenario, mode: str, error: Exception) -> str:
    """Gives the line for a run that raised."""
    return f"{_name_of_run(case_index, scenario, mode)} raised {type(error).__name__}"


def _name_of_run(case_index: int, scenario: Scenario, mode: str) -> str:
    manner = "invariant" if scenario.batch_invariant else "plain"
    return f"case {case_index} {scenario.dtype} {manner} {mode}"


@dataclass(frozen=True)
class DigestComparison:
    """Two files of digests, held against each other.

    Attributes:
        head_differences: Lines of the two heads that differ, such as versions and threads.
        num_equal: Lines that agree before the first that parts.
        parting: The first line of each file that is not the other's; None where none is. A file that ended has "".
    """

    head_differences: tuple[tuple[str, str], ...]
    num_equal: int
    parting: tuple[str, str] | None

    @property
    def is_same(self) -> bool:
        """Whether no line parts."""
        return self.parting is None

    def lines(self) -> Iterator[str]:
        """Says it in words."""
        for one, other in self.head_differences:
            yield f"differs in the head: {one or 'nothing'} | {other or 'nothing'}"
        if self.parting is None:
            yield f"all {self.num_equal} digests are the same"
            return
        one, other = self.parting
        yield f"{self.num_equal} digests are the same; the first that parts:"
        yield f"  one:   {one or '(the file ends)'}"
        yield f"  other: {other or '(the file ends)'}"


def compare_digests(one: Path, other: Path) -> DigestComparison:
    """Compares two files of digests line by line.

    Raises:
        DigestFileError: A file is not one of digests, or holds none, so that nothing could part.
    """
    (one_head, one_rows), (other_head, other_rows) = _read(one), _read(other)
    head_differences = tuple(pair for pair in zip_longest(one_head, other_head, fillvalue="") if pair[0] != pair[1])
    num_equal = 0
    for pair in zip_longest(one_rows, other_rows, fillvalue=""):
        if pair[0] != pair[1]:
            return DigestComparison(head_differences, num_equal, pair)
        num_equal += 1
    return DigestComparison(head_differences, num_equal, None)


def _read(path: Path) -> tuple[list[str], list[str]]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        message = f"{path} cannot be read ({error}); give a file that `check --digests` has written"
        raise DigestFileError(message, path=path) from error
    head = list(takewhile(lambda line: line.startswith("#"), lines))
    rows = lines[len(head) :]
    if not rows or head[:1] != [_FIRST_LINE]:
        message = f"{path} holds no digests under {_FIRST_LINE!r}; give a file that `check --digests` has written"
        raise DigestFileError(message, path=path)
    return head[1:], rows
