import pytest

from oracle.explain.failing_check import SCHEDULES, STATE, SYMBOLIC, FailingCheck
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


@pytest.mark.parametrize(
    ("message", "file"),
    [
        ("a step gave a token to requests [], and the engine told of ['0']", "refinfer/engine/engine.py"),
        ("request 1 was aborted, and its samples [1] go on", "refinfer/engine/engine.py"),
        ("cached block 4 was given up, and blocks [2, 5] were used longer ago", "refinfer/cache/prefix.py"),
        ("request 1, sample 0, came in with 0 blocks, needs 3 more", "refinfer/scheduler/block_space.py"),
        ("is to verify 1 guessed tokens up to 3; max_model_len is 3", "refinfer/engine/speculation.py"),
    ],
)
@pytest.mark.parametrize("name", [STATE, SYMBOLIC, SCHEDULES])
def test_broken_invariant_that_is_asked_nowhere_else_points_at_its_part(name, message, file):
    (sign,) = property_signs(FailingCheck(name, "paged", message))
    assert file in sign.suspect.sources


def test_other_messages_of_schedules_point_at_nothing():
    assert property_signs(FailingCheck(SYMBOLIC, "paged", "token_ids is [1]; alone, without a cache, it is [0]")) == []
