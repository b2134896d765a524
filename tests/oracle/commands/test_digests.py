"""Two files of digests are held against each other, and the first line that parts is shown."""

import pytest

from oracle.commands.shared import EXIT_FAIL, EXIT_PASS, EXIT_USAGE

HEAD = "# refinfer digests 1\n# seed 0\n# threads 1\n"
LINES = [f"case {case} float32 invariant none request 0 row {row} {case}{row}ab" for case in (0, 1) for row in (0, 1)]


@pytest.fixture
def compare(run, tmp_path):
    """Writes what two files shall hold, text or bytes, and compares them; None leaves a file away."""

    def compared(*contents):
        paths = [tmp_path / name for name in ("one.txt", "other.txt")]
        for path, content in zip(paths, contents, strict=True):
            if content is not None:
                path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return run("digests", *paths)

    return compared


def text(lines, head=HEAD):
    """A file of digests."""
    return head + "".join(f"{line}\n" for line in lines)


def test_same_files_pass_with_the_number_of_digests(compare):
    status, output, errors = compare(text(LINES), text(LINES))
    assert (status, errors) == (EXIT_PASS, "")
    assert output == "all 4 digests are the same\n"


@pytest.mark.parametrize("place", range(4))
def test_first_changed_line_is_shown_from_both_files(compare, place):
    changed = [*LINES[:place], *(f"{line}cd" for line in LINES[place:])]
    status, output, _ = compare(text(LINES), text(changed))
    assert status == EXIT_FAIL
    assert output.splitlines() == [
        f"{place} digests are the same; the first that parts:",
        f"  one:   {LINES[place]}",
        f"  other: {LINES[place]}cd",
    ]


def test_lines_are_shown_as_they_are(compare):
    line = f"[bold]{'x' * 200} :smile:[/]"
    _, output, _ = compare(text([line]), text(LINES))
    assert output.splitlines()[1] == f"  one:   {line}"


@pytest.mark.parametrize("is_other_shorter", [True, False])
def test_file_that_ends_too_early_fails(compare, is_other_shorter):
    contents = [text(LINES), text(LINES[:3])]
    status, output, _ = compare(*(contents if is_other_shorter else reversed(contents)))
    assert status == EXIT_FAIL
    ends = [LINES[3], "(the file ends)"]
    one, other = ends if is_other_shorter else reversed(ends)
    assert output.splitlines()[1:] == [f"  one:   {one}", f"  other: {other}"]


def test_heads_that_differ_are_shown_but_part_nothing(compare):
    other_head = "# refinfer digests 1\n# seed 0\n# threads 2\n# more\n"
    status, output, _ = compare(text(LINES), text(LINES, other_head))
    assert status == EXIT_PASS
    assert output.splitlines() == [
        "differs in the head: # threads 1 | # threads 2",
        "differs in the head: nothing | # more",
        "all 4 digests are the same",
    ]


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (HEAD, "holds no digests"),
        ("", "holds no digests"),
        ("\n".join(LINES), "holds no digests"),
        (text(LINES, "# refinfer digests 0\n"), "holds no digests"),
        (bytes(range(256)), "cannot be read"),
        (None, "cannot be read"),
    ],
    ids=["head only", "empty", "no head", "another version", "binary", "missing"],
)
def test_digests_refuses_a_file_that_holds_none(compare, content, message, is_first):
    contents = [content, text(LINES)]
    status, output, errors = compare(*(contents if is_first else reversed(contents)))
    assert (status, output) == (EXIT_USAGE, "")
    assert f"{'one' if is_first else 'other'}.txt {message}" in errors
    assert "Traceback" not in errors
