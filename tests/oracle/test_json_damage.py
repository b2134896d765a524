"""Damage to JSON is what its seed says, of every kind, and mostly still JSON."""

import json
import random

from oracle.json_damage import damaged_json

TEXT = json.dumps({"model_type": "llama", "rope_scaling": {"type": "linear", "factor": 2.0}, "eos_token_id": [1, 2]})


def drawn(seed):
    return damaged_json(TEXT, random.Random(seed))


def test_one_seed_does_one_damage():
    assert drawn(3) == drawn(3)


def test_each_damage_changes_the_text_and_says_how():
    damages = [drawn(seed) for seed in range(200)]
    assert sum(text == TEXT for text, _ in damages) < 10, "a value may be drawn that stood there"
    kinds = ("is gone", "doubled", "there again", "the whole file", "is 1000000000000", "is [[[[")
    assert all(any(kind in words for _, words in damages) for kind in kinds)


def test_keys_inside_are_reached_and_may_stand_twice():
    texts = [text for text, _ in map(drawn, range(200))]
    assert any(text.count('"factor"') == 2 for text in texts)
    assert any('"factor"' not in text and '"rope_scaling"' in text for text in texts)


def test_most_of_it_is_json():
    def is_json(text):
        try:
            json.loads(text)
        except (ValueError, RecursionError):
            return False
        return True

    assert sum(is_json(drawn(seed)[0]) for seed in range(100)) > 60
