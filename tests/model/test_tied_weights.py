"""Tied checkpoints: what is shared and what stays apart is as the reference does it."""

import json
import warnings

import pytest
import torch

from refinfer import load_model
from refinfer.errors import MissingWeightError, WeightShapeError

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"


@pytest.fixture
def write_tied(tiny, tmp_path):
    """Writes a checkpoint whose config.json ties head and embedding, with the two weights as given."""

    def write(tie=True, **weights):
        raw_config = tiny.raw_config | {"tie_word_embeddings": tie}
        body = tiny.drawn_weights(raw_config)
        del body[EMBEDDING]
        body.pop(HEAD, None)
        return tiny.write_checkpoint(tmp_path / "checkpoint", raw_config, body | weights)

    return write


def drawn(seed, rows=23):
    return torch.randn(rows, 12, generator=torch.Generator().manual_seed(seed))


def is_one_storage(first, second):
    return first.data_ptr() == second.data_ptr()


def assert_matches_reference(tiny, folder, dtype="float32"):
    """The same weights in the same storages, and the same logits."""
    ours, reference = load_model(folder, dtype=dtype), tiny.open_reference(folder, dtype)
    embedding, head = reference.model.embed_tokens.weight, reference.lm_head.weight
    assert torch.equal(ours.embedding_weight, embedding)
    assert torch.equal(ours.lm_head.weight, head)
    assert is_one_storage(ours.embedding_weight, ours.lm_head.weight) == is_one_storage(embedding, head)
    return ours


@pytest.mark.parametrize(
    "stored",
    [
        pytest.param({EMBEDDING: drawn(0)}, id="embedding-alone"),
        pytest.param({HEAD: drawn(0)}, id="head-alone"),
        pytest.param({EMBEDDING: drawn(0), HEAD: drawn(0)}, id="both-equal"),
        pytest.param({EMBEDDING: drawn(0).bfloat16(), HEAD: drawn(0).bfloat16().float()}, id="equal-in-two-dtypes"),
        pytest.param({EMBEDDING: torch.zeros(23, 12), HEAD: -torch.zeros(23, 12)}, id="zeros-of-two-signs"),
    ],
)
def test_tied_checkpoint_shares_one_weight_as_reference_does(tiny, write_tied, stored):
    model = assert_matches_reference(tiny, write_tied(**stored))
    assert model.lm_head.weight is model.embedding_weight
    assert len(list(model.parameters())) == len(tiny.weight_shapes(tiny.raw_config)) - 1


def test_tied_checkpoint_shares_values_that_are_equal_in_the_dtype_it_runs_in(tiny, write_tied):
    folder = write_tied(**{EMBEDDING: drawn(0), HEAD: drawn(0) * (1 + 1e-6)})
    assert_matches_reference(tiny, folder, "bfloat16")
    with pytest.warns(UserWarning, match="hold different values"):
        assert_matches_reference(tiny, folder)


def test_tied_checkpoint_with_two_weights_unties_with_a_warning_as_reference_does(tiny, write_tied):
    folder = write_tied(**{EMBEDDING: drawn(0), HEAD: drawn(1)})
    with pytest.warns(UserWarning, match="tie_word_embeddings: false in config.json would say so") as caught:
        model = assert_matches_reference(tiny, folder)
    (warning,) = caught
    assert HEAD in str(warning.message)
    assert EMBEDDING in str(warning.message)
    assert torch.equal(model.lm_head.weight, drawn(1))


@pytest.mark.parametrize(
    ("stored", "name"),
    [
        ({EMBEDDING: drawn(0), HEAD: drawn(1, rows=24)}, HEAD),
        ({EMBEDDING: drawn(0, rows=24), HEAD: drawn(1)}, EMBEDDING),
        ({HEAD: drawn(1, rows=24)}, EMBEDDING),
    ],
    ids=["head", "embedding", "head-alone"],
)
def test_tied_checkpoint_refuses_a_wrong_shape_as_reference_does(tiny, write_tied, stored, name):
    folder = write_tied(**stored)
    with pytest.raises(WeightShapeError, match=rf"weight {name} has shape \(24, 12\)"):
        load_model(folder)
    with pytest.raises(RuntimeError):
        tiny.open_reference(folder)


def test_tied_checkpoint_refuses_to_have_neither_weight(write_tied):
    """The reference makes random ones up, with a warning."""
    with pytest.raises(MissingWeightError, match=f"the first is {EMBEDDING}"):
        load_model(write_tied())


def test_tied_checkpoint_does_without_a_head_that_its_index_names(tiny, write_tied):
    """Some savers list it and write it nowhere; the reference goes by the files too."""
    folder = write_tied(**{EMBEDDING: drawn(0)})
    shard = "model-00001-of-00001.safetensors"
    (folder / "model.safetensors").rename(folder / shard)
    names = [*tiny.weight_shapes(tiny.raw_config), HEAD, "model.rotary_emb.inv_freq"]
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": dict.fromkeys(names, shard)})
    )
    model = assert_matches_reference(tiny, folder)
    assert model.lm_head.weight is model.embedding_weight
    config = json.loads((folder / "config.json").read_text()) | {"tie_word_embeddings": False}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(MissingWeightError, match=f"the first is {HEAD}"):
        load_model(folder)


@pytest.mark.parametrize("missing", [EMBEDDING, HEAD])
def test_untied_checkpoint_refuses_to_have_one_weight_alone(write_tied, missing):
    (stored,) = {EMBEDDING, HEAD} - {missing}
    with pytest.raises(MissingWeightError, match=f"the first is {missing}"):
        load_model(write_tied(tie=False, **{stored: drawn(0)}))


def test_untied_checkpoint_with_equal_weights_keeps_two_as_reference_does(tiny, write_tied):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = assert_matches_reference(tiny, write_tied(tie=False, **{EMBEDDING: drawn(0), HEAD: drawn(0)}))
    assert model.lm_head.weight is not model.embedding_weight
