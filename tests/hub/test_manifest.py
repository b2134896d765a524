"""Damage to a fetched model is seen: by names and sizes at once, by hashes when asked."""

import dataclasses
import hashlib
import json

import pytest

from refinfer.hub.manifest import MANIFEST_FILE, find_damage, sha256_of, write_manifest


@pytest.fixture
def folder(tmp_path, model):
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "weights").write_bytes(b"1234")
    write_manifest(folder, model)
    return folder


@pytest.mark.parametrize("with_hashes", [False, True])
def test_find_damage_finds_none_in_what_was_written(folder, model, with_hashes):
    assert find_damage(folder, model, with_hashes=with_hashes) is None


def test_find_damage_sees_a_folder_that_is_not_there(tmp_path, model):
    assert find_damage(tmp_path / "none", model, with_hashes=False) == "it has not been fetched"


def test_find_damage_sees_a_missing_file(folder, model):
    (folder / "weights").unlink()
    assert find_damage(folder, model, with_hashes=False) == "weights is missing"


def test_find_damage_sees_another_size(folder, model):
    (folder / "weights").write_bytes(b"123")
    assert find_damage(folder, model, with_hashes=False) == "weights has 3 bytes instead of 4"


def test_find_damage_sees_other_bytes_by_their_hash_only(folder, model):
    (folder / "weights").write_bytes(b"1235")
    assert find_damage(folder, model, with_hashes=False) is None
    assert find_damage(folder, model, with_hashes=True) == "weights does not have the recorded hash"


def test_find_damage_sees_another_wheel(folder, model):
    other = dataclasses.replace(model, wheel_sha256="0" * 64)
    assert find_damage(folder, other, with_hashes=False) == "it was made by another version"


@pytest.mark.parametrize(
    ("contents", "damage"),
    [
        (None, "is missing or unreadable"),
        ("{", "is missing or unreadable"),
        ("[]", "is missing or unreadable"),
        ("{}", "it was made by another version"),
    ],
)
def test_find_damage_sees_a_manifest_that_is_none(folder, model, contents, damage):
    (folder / MANIFEST_FILE).unlink()
    if contents is not None:
        (folder / MANIFEST_FILE).write_text(contents)
    assert damage in (find_damage(folder, model, with_hashes=False) or "")


def test_find_damage_sees_a_manifest_of_another_format(folder, model):
    manifest = json.loads((folder / MANIFEST_FILE).read_text())
    (folder / MANIFEST_FILE).write_text(json.dumps(manifest | {"format": 0}))
    assert find_damage(folder, model, with_hashes=False) == "it was made by another version"


def test_sha256_of_is_that_of_the_bytes(tmp_path):
    (tmp_path / "x").write_bytes(b"abc" * 100_000)
    assert sha256_of(tmp_path / "x") == hashlib.sha256(b"abc" * 100_000).hexdigest()
