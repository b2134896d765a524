"""Each family's tiny checkpoint is the same everywhere, loads, and is one on which faults show."""

import hashlib
import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from oracle import families
from oracle.errors import ScenarioError
from oracle.families import FamilySpec, cached_family_checkpoint, make_family_model, write_family_checkpoint
from oracle.family_shapes import FAMILIES, family_of, shapes_of
from oracle.reference import Reference
from oracle.sensitivity import measure_sensitivity

pytestmark = [
    pytest.mark.without_shape_checks,
    pytest.mark.filterwarnings("ignore"),  # some families warn that fast kernels are not there
]

VOCAB_SIZE = 131
SHAPES = [shape for family in FAMILIES for shape in shapes_of(family)]

TELLING = 3e-4
"""Ten times what rounding does, so that an engine which ignores a setting is wrong."""

LLAMA_DIGEST = "098f89be2530fc295180c8abf4767ceddfd2bd5aab6a5383970a8aa641bac6d0"


@pytest.fixture(scope="module")
def prompts():
    """All prompts that a measurement of sensitivity asks for, so that a family runs them in one batch."""
    asked = []

    def record(token_ids):
        asked.append(tuple(token_ids))
        return np.zeros((len(token_ids), VOCAB_SIZE))

    measure_sensitivity(record, VOCAB_SIZE)
    return asked


def digest_of(model):
    digest = hashlib.sha256()
    for name, weight in sorted(model.state_dict().items()):
        digest.update(name.encode() + weight.numpy().tobytes())
    return digest.hexdigest()


@pytest.mark.parametrize("family", SHAPES)
def test_family_follows_from_its_spec_alone_and_is_sensitive(family, prompts):
    torch.manual_seed(1)
    model = make_family_model(FamilySpec(family))
    torch.manual_seed(2)
    assert digest_of(make_family_model(FamilySpec(family))) == digest_of(model)
    with torch.no_grad():
        rows = model(input_ids=torch.tensor(prompts)).logits.numpy()
    rows_by_prompt = dict(zip(prompts, rows, strict=True))
    found = measure_sensitivity(lambda token_ids: rows_by_prompt[tuple(token_ids)], VOCAB_SIZE)
    assert found.is_sensitive, found


def test_weights_are_the_same_bytes_on_every_machine():
    assert digest_of(make_family_model(FamilySpec())) == LLAMA_DIGEST


@pytest.mark.parametrize("family", ["llama", "gpt2", "mixtral"])
def test_reference_loads_what_was_written(family, tmp_path):
    spec = FamilySpec(family, seed=3)
    folder = write_family_checkpoint(spec, tmp_path)
    token_ids = [5, 3, 8, 2, 13]
    with torch.no_grad():
        expected = make_family_model(spec)(input_ids=torch.tensor([token_ids])).logits[0]
    assert torch.allclose(Reference.open(folder).logits(token_ids), expected, atol=1e-4)


@pytest.mark.parametrize("eos_token_ids", [(), (7, 19)])
def test_checkpoint_names_what_ends_a_request(eos_token_ids, tmp_path):
    folder = write_family_checkpoint(FamilySpec(eos_token_ids=eos_token_ids), tmp_path)
    generation = json.loads((folder / "generation_config.json").read_text())
    config = json.loads((folder / "config.json").read_text())
    assert generation.get("eos_token_id") == config.get("eos_token_id") == (list(eos_token_ids) or None)


def test_head_can_be_tied_to_the_embedding():
    tied, own = (make_family_model(FamilySpec(tie_word_embeddings=is_tied)) for is_tied in (True, False))
    assert tied.lm_head.weight is tied.model.embed_tokens.weight
    assert own.lm_head.weight is not own.model.embed_tokens.weight


@pytest.mark.parametrize(("family", "hidden_size"), [("qwen3", 64), ("qwen2", 128), ("falcon", 128)])
def test_head_has_the_width_that_an_engine_takes(family, hidden_size):
    spec = FamilySpec.with_head(family, 32)
    assert spec.hidden_size == hidden_size
    model = make_family_model(spec)
    query = next(weight for name, weight in model.named_parameters() if "q_proj.weight" in name or "query" in name)
    assert query.shape[0] in (4 * 32, (4 + 2 * 2) * 32)


def test_spec_refuses_a_family_that_nobody_knows():
    with pytest.raises(ScenarioError, match="'lama' is unknown; known are llama, mistral"):
        FamilySpec("lama")


def test_spec_refuses_a_variant_that_nobody_knows():
    with pytest.raises(ScenarioError, match="'gemma:odd' is unknown; known are gemma, gemma:one-key-head"):
        FamilySpec("gemma:odd")


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape not in FAMILIES])
def test_variant_gives_other_logits_than_the_usual_shape(shape):
    """A setting that the configuration class does not take, or that changes nothing, would test nothing."""
    token_ids = torch.tensor([[(5 + 7 * place * place) % VOCAB_SIZE for place in range(40)]])
    with torch.no_grad():
        usual, other = (
            make_family_model(FamilySpec(name))(input_ids=token_ids).logits for name in (family_of(shape), shape)
        )
    assert (usual - other).abs().max() > TELLING


def test_each_field_of_a_spec_gives_other_weights():
    spec = FamilySpec()
    others = [
        replace(spec, family="qwen2"),
        replace(spec, seed=1),
        replace(spec, head_dim=16),
        replace(spec, hidden_size=128),
        replace(spec, eos_token_ids=()),
        replace(spec, tie_word_embeddings=True),
    ]
    assert len({each.digest for each in (spec, *others)}) == 1 + len(others)


@pytest.fixture
def write_nothing(monkeypatch):
    """Counts how often a checkpoint is written, and makes an empty folder instead."""
    written = []

    def write(spec, folder):
        folder.mkdir()
        written.append(spec)
        return folder

    monkeypatch.setattr(families, "write_family_checkpoint", write)
    return written


def test_checkpoint_is_written_once(write_nothing, tmp_path):
    root = tmp_path / "cache"
    folders = {cached_family_checkpoint(FamilySpec(), root) for _ in range(2)}
    assert folders == {root / FamilySpec().digest}
    assert len(write_nothing) == 1
    assert [each.name for each in root.iterdir()] == [FamilySpec().digest]


def test_checkpoint_of_another_process_that_was_first_is_taken(monkeypatch, tmp_path):
    spec = FamilySpec()

    def write(spec, folder):
        for each in (folder, tmp_path / spec.digest):
            each.mkdir()
        (tmp_path / spec.digest / "config.json").touch()
        return folder

    monkeypatch.setattr(families, "write_family_checkpoint", write)
    assert (cached_family_checkpoint(spec, tmp_path) / "config.json").exists()


def test_cache_that_cannot_be_written_is_an_error(monkeypatch, tmp_path):
    monkeypatch.setattr(families, "write_family_checkpoint", lambda _spec, folder: folder)
    with pytest.raises(FileNotFoundError):
        cached_family_checkpoint(FamilySpec(), tmp_path)
