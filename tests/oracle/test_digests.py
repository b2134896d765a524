"""A digest tells any two rows apart that differ in a bit, and a comparison names the first line that parts."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from oracle.digests import DigestWriter, compare_digests, digest, error_line, row_lines
from oracle.errors import DigestFileError
from oracle.report import environment
from oracle.scenario import DTYPES, RequestSpec, Scenario
from oracle.subjects import RequestRecord

HEAD = "# refinfer digests 1"
SCENARIO = Scenario(requests=(RequestSpec((1, 2), max_tokens=3),), dtype="bfloat16", batch_invariant=True)

each_dtype = pytest.mark.parametrize("dtype", [getattr(torch, name) for name in DTYPES], ids=DTYPES)


def some_row(dtype):
    """A row of seven numbers without a zero."""
    return torch.randn(7).to(dtype)


@each_dtype
@pytest.mark.parametrize("towards", [-torch.inf, torch.inf])
def test_digest_changes_with_the_next_number_in_any_place(dtype, towards):
    row = some_row(dtype)
    digests = {digest(row)}
    for place in range(len(row)):
        changed = row.clone()
        changed[place] = torch.nextafter(row[place], torch.tensor(towards, dtype=dtype))
        digests.add(digest(changed))
    assert len(digests) == 1 + len(row)


@each_dtype
def test_digest_changes_with_the_order(dtype):
    row = some_row(dtype)
    assert digest(row.flip(0)) != digest(row)


@each_dtype
def test_digest_does_not_depend_on_where_the_row_lies(dtype):
    row = some_row(dtype)
    column = torch.stack([row, row + 1], dim=1)[:, 0]
    part = torch.cat([row, row])[7:]
    assert not column.is_contiguous()
    assert digest(column) == digest(part) == digest(row.clone()) == digest(row)


@each_dtype
def test_digest_counts_zeros_of_both_signs_as_one(dtype):
    row = some_row(dtype)
    row[3] = 0.0
    negative = row.clone()
    negative[3] = -0.0
    assert torch.signbit(negative[3])
    assert digest(negative) == digest(row)
    negative[3] = torch.finfo(dtype).smallest_normal
    assert digest(negative) != digest(row)


@each_dtype
def test_digest_leaves_its_row_as_it_is(dtype):
    row = torch.full((3,), -0.0, dtype=dtype)
    digest(row)
    assert torch.signbit(row).all()


def test_digest_differs_between_dtypes():
    digests = {digest(torch.tensor([1.0, -2.0, 0.5]).to(getattr(torch, name))) for name in DTYPES}
    assert len(digests) == len(DTYPES)


def test_digest_has_sixteen_hexadecimal_digits_that_stay():
    """A file of another day and machine must still compare."""
    assert digest(torch.tensor([1.0, -2.0, 0.5])) == "2ce4bdb6b34a50ac"


def record(*rows):
    """A record with some rows of logits."""
    return RequestRecord((1, 2), (0,) * len(rows), torch.tensor(rows), "length", (1,) * len(rows))


def test_writer_writes_a_head_and_a_line_for_each_row(tmp_path):
    path = tmp_path / "digests.txt"
    path.write_text("what was there before", encoding="utf-8")
    rows = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
    with DigestWriter(path, seed=7) as writer:
        writer.write(row_lines(0, SCENARIO, "static", [record(*rows[:2]), record(rows[2])]))
        writer.write([error_line(1, SCENARIO, "none", IndexError("not said"))])
    first, second, third = (digest(torch.tensor(row)) for row in rows)
    assert path.read_text(encoding="utf-8").splitlines() == [
        HEAD,
        "# seed 7",
        *(f"# {name} {value}" for name, value in environment().items()),
        f"case 0 bfloat16 invariant static request 0 row 0 {first}",
        f"case 0 bfloat16 invariant static request 0 row 1 {second}",
        f"case 0 bfloat16 invariant static request 1 row 0 {third}",
        "case 1 bfloat16 invariant none raised IndexError",
    ]


def test_line_says_which_manner_ran():
    plain = Scenario(requests=SCENARIO.requests, batch_invariant=False)
    (line,) = row_lines(0, plain, "none", [record([1.0])])
    assert line.startswith("case 0 float32 plain none request 0 row 0 ")


@pytest.mark.parametrize("change", [0.0, 1e-6], ids=["same", "changed"])
def test_what_was_written_is_compared_row_by_row(tmp_path, change):
    paths = [tmp_path / "one.txt", tmp_path / "other.txt"]
    for path, value in zip(paths, (1.0, 1.0 + change), strict=True):
        with DigestWriter(path, seed=0) as writer:
            writer.write(row_lines(0, SCENARIO, "none", [record([2.0, 3.0], [2.0, value])]))
    comparison = compare_digests(*paths)
    assert comparison.head_differences == ()
    assert comparison.is_same == (change == 0.0)
    assert comparison.num_equal == (2 if comparison.is_same else 1)


lists_of_lines = st.lists(st.sampled_from(["case a", "case b", "case c"]), min_size=1, max_size=6)


@given(one=lists_of_lines, other=lists_of_lines)
def test_line_that_parts_is_the_first_one(tmp_path_factory, one, other):
    """All lines before it agree, and it does not; when none parts, the files are equal."""
    folder = tmp_path_factory.mktemp("digests")
    paths = [folder / "one.txt", folder / "other.txt"]
    for path, lines in zip(paths, (one, other), strict=True):
        path.write_text("\n".join([HEAD, *lines]), encoding="utf-8")
    comparison = compare_digests(*paths)
    assert comparison.is_same == (one == other)
    num_equal = comparison.num_equal
    assert one[:num_equal] == other[:num_equal]
    rests = [lines[num_equal:] for lines in (one, other)]
    if comparison.parting is None:
        assert rests == [[], []]
    else:
        assert comparison.parting == tuple(rest[0] if rest else "" for rest in rests)
        assert comparison.parting[0] != comparison.parting[1]


def test_no_line_is_left_out_of_a_file_with_a_second_head(tmp_path):
    """As when two files were put into one."""
    paths = [tmp_path / "one.txt", tmp_path / "other.txt"]
    for path, last in zip(paths, ("b", "c"), strict=True):
        path.write_text("\n".join([HEAD, "case a", f"case {last}", HEAD, "case d"]), encoding="utf-8")
    comparison = compare_digests(*paths)
    assert (comparison.num_equal, comparison.parting) == (1, ("case b", "case c"))


def test_refused_file_is_an_attribute_of_the_error(tmp_path):
    path = tmp_path / "nowhere.txt"
    with pytest.raises(DigestFileError, match=r"nowhere\.txt cannot be read") as caught:
        compare_digests(path, path)
    assert caught.value.path == path
