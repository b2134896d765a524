import pytest

from oracle.case import Case
from oracle.explain.first_token import first_token


def test_right_run_has_no_token_that_parts(schedule, watched):
    assert first_token(watched(schedule), Case(schedule)) is None


def test_first_token_has_both_margins_and_a_kind(schedule, watched):
    token = first_token(watched(schedule, "continuous", "chunk_positions_restart"), Case(schedule))
    assert token is not None
    assert (token.what, token.kind) == ("token", "wrong")
    assert token.got != token.due
    assert token.referee_margin is not None
    assert token.bound is not None
    assert token.referee_margin > token.bound
    assert token.own_margin is not None
    assert token.place.step is not None


def test_tied_token_is_called_tied(symbolic, watched):
    """Logits of the symbolic model are coarse, so that ties come up."""
    token = first_token(watched(symbolic, fault="part_of_prompt_emits"), None)
    assert token is not None
    assert token.kind in ("wrong", "tied")
    assert (token.kind == "tied") is (token.referee_margin == 0)


@pytest.mark.parametrize("mode", ["continuous", "paged"])
def test_other_output_is_named_where_tokens_agree(symbolic, watched, mode):
    token = first_token(watched(symbolic, mode, "one_token_past_max_tokens"), None)
    assert token is not None
    assert token.what == "token_ids"
