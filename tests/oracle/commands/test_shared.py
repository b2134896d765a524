"""Options are read to the letter, and a name that nobody knows is refused with those that there are."""

import argparse

import pytest
import torch

from oracle.commands.shared import (
    chosen_dtypes,
    chosen_modes,
    chosen_properties,
    output_file,
    pin_threads,
    planted,
    positive,
)
from oracle.errors import OracleError
from oracle.faults import FAULTS
from oracle.properties import PROPERTIES
from oracle.scenario import DTYPES
from oracle.subjects import MODES

CHOOSERS = {
    "mode": (chosen_modes, MODES),
    "dtype": (chosen_dtypes, DTYPES),
    "property": (
        lambda text: tuple(prop.name for prop in chosen_properties(text)),
        tuple(prop.name for prop in PROPERTIES),
    ),
}

each_kind = pytest.mark.parametrize("kind", CHOOSERS)


@each_kind
def test_chosen_names_keep_the_order_in_which_they_are_given(kind):
    choose, names = CHOOSERS[kind]
    assert choose(",".join(reversed(names))) == tuple(reversed(names))
    assert choose(names[1]) == (names[1],)


@each_kind
def test_chosen_names_may_stand_apart_and_count_once(kind):
    choose, names = CHOOSERS[kind]
    assert choose(f" {names[1]} , {names[0]},{names[1]}") == (names[1], names[0])


@each_kind
@pytest.mark.parametrize("wrong", ["no_such", "", "NONE"])
def test_chosen_names_refuse_an_unknown_one_and_name_the_choices(kind, wrong):
    choose, names = CHOOSERS[kind]
    with pytest.raises(OracleError) as caught:
        choose(f"{names[0]},{wrong}")
    assert str(caught.value) == f"{kind} {wrong!r} is unknown; choose among {', '.join(names)}"


def test_all_properties_are_chosen_when_none_is_named():
    assert chosen_properties(None) == PROPERTIES


@pytest.mark.parametrize(("text", "value"), [("1", 1), ("300", 300)])
def test_positive_reads_a_whole_number(text, value):
    assert positive(text) == value


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("0", argparse.ArgumentTypeError),
        ("-3", argparse.ArgumentTypeError),
        ("1.5", ValueError),
        ("many", ValueError),
        ("", ValueError),
    ],
)
def test_positive_refuses_what_is_not_a_whole_number_of_at_least_one(text, error):
    """Both errors are those that argparse turns into a refusal."""
    with pytest.raises(error):
        positive(text)


def test_output_file_takes_a_file_that_is_there_and_one_that_is_not_yet(tmp_path):
    for name in ("new.json", "old.json"):
        (tmp_path / "old.json").write_text("{}")
        assert output_file(str(tmp_path / name)) == tmp_path / name
    assert (tmp_path / "old.json").read_text() == "{}"
    assert not (tmp_path / "new.json").exists()


def test_output_file_that_cannot_be_written_is_refused_before_the_work(tmp_path, monkeypatch):
    with pytest.raises(argparse.ArgumentTypeError, match="is a folder; name a file in it"):
        output_file(str(tmp_path))
    with pytest.raises(argparse.ArgumentTypeError, match=r"there is no folder .*missing; make it first"):
        output_file(str(tmp_path / "missing" / "out.json"))
    monkeypatch.setattr("os.access", lambda path, _: path != tmp_path)
    with pytest.raises(argparse.ArgumentTypeError, match="permission is missing; name a file elsewhere"):
        output_file(str(tmp_path / "out.json"))


@pytest.mark.parametrize(
    ("with_folder", "num_threads", "expected"),
    [(False, None, 1), (False, 3, 3), (True, 3, 3), (True, None, 2)],
    ids=["generated", "generated, told", "model, told", "model"],
)
def test_only_a_given_model_keeps_torchs_own_number_of_threads(
    monkeypatch, tmp_path, with_folder, num_threads, expected
):
    numbers = [2]
    monkeypatch.setattr(torch, "set_num_threads", numbers.append)
    pin_threads(tmp_path if with_folder else None, num_threads)
    assert numbers[-1] == expected


def test_a_bug_is_planted_while_the_block_runs():
    (replacement,) = FAULTS["rope_scaling_ignored"].replacements

    def is_there():
        return getattr(replacement.owner, replacement.attribute) is replacement.value

    with planted("rope_scaling_ignored"):
        assert is_there()
    with planted(None):
        assert not is_there()


def test_an_unknown_bug_is_refused():
    with pytest.raises(OracleError, match=r"fault 'none_such' is unknown; .*faults --list"):
        planted("none_such")
