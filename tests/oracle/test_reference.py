"""The reference: asked in one way only, and refused where it would not be one."""

import json
import logging
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch import nn
from torch.nn import functional
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.utils import logging as transformers_logging

from oracle.activations import canonical_names
from oracle.errors import ReferenceUnavailable, ScenarioError
from oracle.reference import Reference, ReferenceTokenizer
from refinfer import load_model

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 0]
CACHE_LINE = 64


@pytest.fixture(scope="module")
def reference(llama_folder):
    return Reference.open(llama_folder)


def test_reference_logits_are_those_of_the_model(reference, llama_folder):
    with torch.no_grad():
        expected = LlamaForCausalLM.from_pretrained(llama_folder)(torch.tensor([PROMPT])).logits[0]
    assert torch.equal(reference.logits(PROMPT), expected)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
def test_reference_runs_in_the_dtype_it_is_given(llama_folder, dtype):
    logits = Reference.open(llama_folder, dtype=dtype).logits(PROMPT)
    assert logits.dtype == getattr(torch, dtype)
    assert logits.shape == (9, 131)


def test_weights_of_both_sides_start_at_cache_lines(llama_folder):
    for model in (Reference.open(llama_folder).model, load_model(llama_folder)):
        addresses = {name: weight.data_ptr() % CACHE_LINE for name, weight in model.named_parameters()}
        assert not any(addresses.values()), addresses


def test_reference_runs_the_attention_it_is_given(llama_folder):
    reference = Reference.open(llama_folder, attn_implementation="eager")
    assert reference.model.config._attn_implementation == "eager"


def test_greedy_tokens_and_logits_are_those_of_one_teacher_forced_step_each(reference):
    token_ids, logits = reference.greedy(PROMPT, 6)
    assert len(token_ids) == 6
    for step, token_id in enumerate(token_ids):
        assert torch.equal(logits[step], reference.logits([*PROMPT, *token_ids[:step]])[-1])
        assert token_id == logits[step].argmax()


@pytest.mark.parametrize("use_cache", [False, True], ids=["without cache", "with cache"])
def test_greedy_tokens_are_those_of_generate(reference, use_cache):
    token_ids, _ = reference.greedy(PROMPT, 12, use_cache=use_cache)
    output = reference.model.generate(
        torch.tensor([PROMPT]),
        attention_mask=torch.ones(1, 9),
        do_sample=False,
        max_new_tokens=12,
        eos_token_id=None,
    )
    assert token_ids == output[0, 9:].tolist()
    assert len(set(token_ids)) > 5  # else nearly any model would give them


def test_greedy_with_cache_differs_in_roundings_only(reference):
    _, logits = reference.greedy(PROMPT, 12)
    _, cached_logits = reference.greedy(PROMPT, 12, use_cache=True)
    assert torch.allclose(cached_logits, logits, rtol=0, atol=1e-4)


@pytest.mark.parametrize("use_cache", [False, True], ids=["without cache", "with cache"])
def test_greedy_ends_with_the_first_eos_token_and_keeps_it(reference, use_cache):
    token_ids, _ = reference.greedy(PROMPT, 12)
    eos_token_ids = {token_ids[7], token_ids[4]}
    num_expected = min(map(token_ids.index, eos_token_ids)) + 1
    ended, logits = reference.greedy(PROMPT, 12, eos_token_ids, use_cache=use_cache)
    assert ended == token_ids[:num_expected]
    assert len(logits) == num_expected


class Undecided(nn.Module):
    """Scores two tokens alike, always."""

    def forward(self, input_ids, attention_mask, *, use_cache):
        assert attention_mask.shape == input_ids.shape
        assert not use_cache
        return SimpleNamespace(logits=torch.tensor([0.0, 2.0, 2.0, 1.0]).expand(1, input_ids.shape[1], 4))


def test_greedy_takes_the_lowest_id_of_a_tie():
    token_ids, logits = Reference(Undecided()).greedy([3], 2)
    assert token_ids == [1, 1]
    assert logits.tolist() == [[0.0, 2.0, 2.0, 1.0]] * 2


def test_reference_activations_have_the_canonical_names_in_order(reference):
    activations = reference.activations(PROMPT)
    assert tuple(activations) == canonical_names(num_layers=3)
    assert torch.equal(activations["lm_head"], reference.logits(PROMPT))


def test_reference_rebuilds_the_queries_and_keys_that_attention_was_given(reference):
    """Attending with the rebuilt ones gives what the output projection was given, bit for bit."""
    activations = reference.activations(PROMPT)
    for layer_index in range(3):
        path = f"model.layers.{layer_index}.self_attn"
        queries, keys, values = (
            activations[f"{path}.{name}"].reshape(9, -1, 8).transpose(0, 1)[None]
            for name in ("rotated_queries", "rotated_keys", "v_proj")
        )
        output = functional.scaled_dot_product_attention(queries, keys, values, is_causal=True, enable_gqa=True)
        assert torch.equal(output[0].transpose(0, 1), activations[f"{path}.per_head_output"])


@pytest.mark.parametrize("ask", ["logits", "activations"])
def test_reference_refuses_a_request_without_a_token(reference, ask):
    with pytest.raises(ScenarioError, match="at least one token id"):
        getattr(reference, ask)([])


def test_greedy_refuses_to_emit_nothing(reference):
    with pytest.raises(ScenarioError, match="max_tokens is 0"):
        reference.greedy(PROMPT, 0)


def test_reference_refuses_a_name_that_is_no_folder():
    with pytest.raises(ReferenceUnavailable, match="some/model is not a folder"):
        Reference.open("some/model")


def test_reference_refuses_an_empty_folder(tmp_path):
    with pytest.raises(ReferenceUnavailable, match="transformers cannot load"):
        Reference.open(tmp_path)


def test_reference_refuses_a_missing_weight(save_llama):
    """Transformers would fill it with random numbers and say so in its log only."""
    path = save_llama() / "model.safetensors"
    weights = load_file(path)
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, path, metadata={"format": "pt"})
    with pytest.raises(ReferenceUnavailable, match=r"lacks model\.layers\.1\.mlp\.up_proj\.weight"):
        Reference.open(path.parent)


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "model.safetensors").write_bytes(b"\x08"),
        lambda folder: (folder / "model.safetensors").unlink(),
        lambda folder: save_file(
            load_file(folder / "model.safetensors") | {"model.norm.weight": torch.ones(47)},
            folder / "model.safetensors",
            metadata={"format": "pt"},
        ),
        lambda folder: (folder / "config.json").write_text("{}"),
        lambda folder: (folder / "config.json").write_text("{"),
        lambda folder: (folder / "config.json").write_text('{"model_type": "llama", "hidden_size": "wide"}'),
    ],
    ids=["weights cut short", "no weights", "wrong shape", "no model type", "no JSON", "wrong type"],
)
def test_reference_refuses_what_transformers_cannot_load(save_llama, damage):
    folder = save_llama()
    damage(folder)
    with pytest.raises(ReferenceUnavailable, match="transformers cannot load"):
        Reference.open(folder)


def test_opening_a_reference_is_quiet_and_leaves_the_log_as_it_was(llama_folder, tmp_path, capfd):
    transformers_logging.set_verbosity(logging.INFO)
    transformers_logging.enable_progress_bar()
    try:
        Reference.open(llama_folder)
        with pytest.raises(ReferenceUnavailable):
            Reference.open(tmp_path)
        assert transformers_logging.get_verbosity() == logging.INFO
        assert transformers_logging.is_progress_bar_enabled()
    finally:
        transformers_logging.set_verbosity(logging.WARNING)
    assert capfd.readouterr() == ("", "")


@pytest.fixture
def tokenizer_folder(tmp_path):
    words = ["<s>", "</s>", "user", "assistant", "hello", "there"]
    backend = Tokenizer(models.WordLevel({word: token_id for token_id, word in enumerate(words)}, unk_token="</s>"))  # noqa: S106 (no password)
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>")  # noqa: S106 (no password)
    tokenizer.chat_template = (
        "<s> {% for message in messages %}{{ message.role }} {{ message.content }} </s> {% endfor %}"
        "{% if add_generation_prompt %}assistant{% endif %}"
    )
    tokenizer.save_pretrained(tmp_path)
    return tmp_path


def test_tokenizer_puts_its_special_tokens_around_a_text(tokenizer_folder):
    assert ReferenceTokenizer.open(tokenizer_folder).encode("hello there") == [0, 4, 5]


def test_tokenizer_gives_a_chat_up_to_where_the_assistant_speaks(tokenizer_folder):
    messages = [{"role": "user", "content": "hello"}]
    assert ReferenceTokenizer.open(tokenizer_folder).encode_chat(messages) == [0, 2, 4, 1, 3]


def test_tokenizer_decodes_without_special_tokens(tokenizer_folder):
    assert ReferenceTokenizer.open(tokenizer_folder).decode([0, 4, 5, 1]) == "hello there"


def test_tokenizer_refuses_a_chat_without_a_template(tokenizer_folder):
    (tokenizer_folder / "chat_template.jinja").unlink()
    with pytest.raises(ReferenceUnavailable, match="no chat template"):
        ReferenceTokenizer.open(tokenizer_folder).encode_chat([{"role": "user", "content": "hello"}])


def test_tokenizer_refuses_a_folder_without_one(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    with pytest.raises(ReferenceUnavailable, match="transformers cannot load"):
        ReferenceTokenizer.open(tmp_path)
