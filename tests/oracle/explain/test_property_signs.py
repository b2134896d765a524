import pytest

from oracle.explain.failing_check import FailingCheck
from oracle.explain.property_signs import property_signs


@pytest.mark.parametrize(
    ("name", "message", "file"),
    [
        ("text", "encode_chat('a') gives [1]; the reference gives [2]", "refinfer/tokenizer/tokenizer.py"),
        ("text", "tokens [1] put together give 'a'; decoded whole they give 'b'", "refinfer/tokenizer/detokenizer.py"),
        ("broken_checkpoints", "truncated file: the broken checkpoint loaded", "refinfer/model/safetensors_file.py"),
        ("broken_checkpoints", "unknown RoPE type: it loaded", "refinfer/config/rope_config.py"),
        ("broken_checkpoints", "missing weight: it loaded", "refinfer/model/checkpoint.py"),
        ("stopping", "request 0 ended after 2 tokens", "refinfer/sampling/stopping.py"),
    ],
)
def test_property_points_at_what_it_is_about(name, message, file):
    (sign,) = property_signs(FailingCheck(name, "none", message))
    assert sign.suspect.sources[0] == file


def test_property_that_could_be_anything_points_at_nothing():
    assert property_signs(FailingCheck("schedules", "paged", "tokens differ")) == []
