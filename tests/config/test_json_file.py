"""Reading one JSON object, and saying which file is at fault."""

import json

import pytest

from refinfer.config.json_file import read_json_object
from refinfer.errors import CheckpointError


def test_read_json_object_gives_what_the_file_holds(tmp_path):
    path = tmp_path / "config.json"
    value = {"a": 1, "é": [None, True, "…"]}
    path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")
    assert read_json_object(path) == value


def test_read_json_object_refuses_a_file_that_does_not_exist(tmp_path):
    path = tmp_path / "config.json"
    with pytest.raises(CheckpointError, match=r"does not exist; a checkpoint folder needs config.json") as caught:
        read_json_object(path)
    assert caught.value.path == path
    assert str(path) in str(caught.value)
    assert isinstance(caught.value.__cause__, FileNotFoundError)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b'{"a": 1', id="cut-off"),
        pytest.param(b'{"a": "\xff"}', id="not-utf8"),
        pytest.param(b"[" * 100_000, id="nested-too-deep"),
    ],
)
def test_read_json_object_refuses_what_is_not_json(tmp_path, content):
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"cannot be read as JSON .*save the file again") as caught:
        read_json_object(path)
    assert str(path) in str(caught.value)


def test_read_json_object_refuses_a_folder(tmp_path):
    (tmp_path / "config.json").mkdir()
    with pytest.raises(CheckpointError, match="cannot be read"):
        read_json_object(tmp_path / "config.json")


@pytest.mark.parametrize("content", ["[]", "null", "3", '"text"'], ids=["list", "null", "number", "text"])
def test_read_json_object_refuses_what_is_not_an_object(tmp_path, content):
    path = tmp_path / "config.json"
    path.write_text(content)
    with pytest.raises(CheckpointError, match="not a JSON object") as caught:
        read_json_object(path)
    assert str(path) in str(caught.value)
