import pytest

from oracle.errors import InvariantViolation, OutcomeMismatch
from oracle.explain.watched_run import sign_of_error
from oracle.symbolic_check import SYMBOLIC_MODES
from refinfer.cache.block_pool import BlockPool
from refinfer.errors import RefinferError


def test_symbolic_run_shows_no_sign_in_any_mode(symbolic, watched):
    assert [watched(symbolic, mode).signs for mode in SYMBOLIC_MODES] == [[]] * len(SYMBOLIC_MODES)


def test_error_points_at_where_it_was_raised():
    with pytest.raises(RefinferError) as caught:
        BlockPool(0)
    sign = sign_of_error(caught.value, 3)
    assert (sign.step, sign.suspect.component) == (3, "cache")
    assert sign.suspect.sources == ("refinfer/cache/block_pool.py",)


def test_error_points_at_no_file_that_only_lies_in_a_folder_of_that_name(tmp_path):
    """Checkouts are called like the project, as a rule, and the harness and its tests lie in them as well."""
    path = tmp_path / "refinfer" / "oracle" / "drive.py"
    with pytest.raises(RefinferError) as caught:
        exec(compile("BlockPool(0)", str(path), "exec"), {"BlockPool": BlockPool})  # noqa: S102 (our own line)
    assert sign_of_error(caught.value, 3).suspect.sources == ("refinfer/cache/block_pool.py",)


@pytest.mark.parametrize(
    ("error", "component"),
    [
        (OutcomeMismatch("request 0: 'a' was shown, and became 'b'"), "detokenizer"),
        (InvariantViolation("all requests have ended, and 2 blocks are left"), "block space"),
        (OutcomeMismatch("the last 1 of 1 guessed tokens were rejected by token 3"), "verifier"),
        (InvariantViolation("the draft model guesses otherwise without a cache"), "proposer"),
    ],
)
def test_error_of_the_harness_points_at_what_it_says(error, component):
    assert sign_of_error(error, 0).suspect.component == component


def test_error_ends_a_run_and_is_kept(schedule, watched):
    run = watched(schedule, fault="values_not_copied")
    assert run.error is not None
    assert run.signs[-1].what.startswith(type(run.error).__name__)


def test_blocks_that_are_left_are_a_sign(symbolic, watched):
    sign = watched(symbolic, fault="newest_block_not_released").signs[0]
    assert "refinfer/cache/block_table.py" in sign.suspect.sources or sign.suspect.component == "block pool"
