from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from oracle.checkpoints import CheckpointSpec, write_checkpoint
from oracle.errors import InsensitiveModelError
from oracle.reference import Reference
from oracle.sensitivity import insensitive_spec, measure_sensitivity, require_sensitive
from oracle.strategies import checkpoint_specs

VOCAB_SIZE = 131


def scores(best):
    """Logits whose largest value stands at one id for each position."""
    return np.eye(VOCAB_SIZE)[np.asarray(best)]


def context_decides(token_ids):
    return scores([sum((i + 2) * token for i, token in enumerate(token_ids[: n + 1])) % VOCAB_SIZE for n in range(24)])


def repeats_its_input(token_ids):
    return scores(token_ids)


def sees_the_last_token_only(token_ids):
    return scores([(token + 1) % VOCAB_SIZE for token in token_ids])


def forgets_early_tokens(token_ids):
    return scores([sum(token_ids[max(0, n - 2) : n + 1]) % VOCAB_SIZE for n in range(len(token_ids))])


def test_model_whose_whole_context_decides_is_sensitive():
    found = require_sensitive(context_decides, VOCAB_SIZE)
    assert found.input_share < 0.05
    assert found.context_share > 0.9
    assert found.early_share > 0.9


@pytest.mark.parametrize(
    ("logits", "share"),
    [
        (repeats_its_input, "input_share"),
        (sees_the_last_token_only, "context_share"),
        (forgets_early_tokens, "early_share"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_guard_refuses_a_model_that_ignores_its_context(logits, share):
    with pytest.raises(InsensitiveModelError, match="faults would not show") as caught:
        require_sensitive(logits, VOCAB_SIZE)
    bad = getattr(caught.value.values["sensitivity"], share)
    assert bad == (1.0 if share == "input_share" else 0.0)


def test_guard_trips_on_the_usual_initialisation(tmp_path):
    spec = insensitive_spec()
    reference = Reference.open(write_checkpoint(spec, tmp_path))
    with pytest.raises(InsensitiveModelError):
        require_sensitive(reference.logits, spec.vocab_size)


@pytest.mark.parametrize("is_tied", [False, True])
def test_default_checkpoint_is_sensitive(tmp_path, is_tied):
    spec = replace(CheckpointSpec(), tie_word_embeddings=is_tied)
    reference = Reference.open(write_checkpoint(spec, tmp_path))
    require_sensitive(reference.logits, spec.vocab_size)


@settings(max_examples=6)
@given(spec=checkpoint_specs())
def test_generated_checkpoints_do_not_repeat_their_input(tmp_path_factory, spec):
    reference = Reference.open(write_checkpoint(spec, tmp_path_factory.mktemp("checkpoint")))
    found = measure_sensitivity(reference.logits, spec.vocab_size)
    assert found.input_share <= 0.05, found
    assert found.early_share >= 0.2, found
