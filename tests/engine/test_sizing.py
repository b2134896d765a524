"""Default settings start on every model; a length that was asked for and cannot be had is refused by name."""

import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import LlamaConfig, LlamaForCausalLM

from oracle.checkpoint_spec import CheckpointSpec
from oracle.checkpoints import cached_checkpoint
from refinfer import LLM, EngineConfig, LLMEngine, SamplingParams
from refinfer.config import ModelConfig
from refinfer.engine import LoadedModel, sizing
from refinfer.engine import engine as engine_module
from refinfer.engine.sizing import decide_max_model_len, num_draft_blocks, num_pool_blocks
from refinfer.errors import ConfigError

PUBLISHED = json.loads(
    (Path(__file__).parents[1] / "config" / "published_llama_configs.json").read_text(encoding="utf-8")
)
LOADED = {repository: entry for repository, entry in PUBLISHED.items() if "refused" not in entry}
REFUSED = {repository: entry for repository, entry in PUBLISHED.items() if "refused" in entry}

SHAPE = ModelConfig.from_raw_config(
    {
        "model_type": "llama",
        "vocab_size": 97,
        "hidden_size": 24,
        "intermediate_size": 40,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 6,
        "max_position_embeddings": 100,
    }
)
BYTES_PER_TOKEN = 2 * 2 * 2 * 6 * 4


def length_of(shape=SHAPE, dtype=torch.float32, **options):
    return decide_max_model_len(shape, dtype, EngineConfig(**options))


@pytest.fixture
def scaled():
    """The shape of a model whose RoPE is of another type."""

    def scale(rope_type, **numbers):
        return replace(SHAPE, rope=replace(SHAPE.rope, rope_type=rope_type, **numbers))

    return scale


@pytest.mark.parametrize(("repository", "entry"), LOADED.items(), ids=LOADED)
def test_published_model_starts_with_default_settings(repository, entry, caplog):
    shape = ModelConfig.from_raw_config(entry["config"])
    assert length_of(shape) == entry["max_model_len"]
    is_cut = entry["max_model_len"] < shape.max_position_embeddings
    assert len(caplog.records) == is_cut, f"{repository}: said where the length is not the model's own, and only there"
    assert num_pool_blocks(shape, torch.float32, EngineConfig(), entry["max_model_len"]) * 16 >= entry["max_model_len"]


@pytest.mark.parametrize(("repository", "entry"), REFUSED.items(), ids=REFUSED)
def test_published_model_is_refused_with_a_reason_and_a_way_out(repository, entry):
    with pytest.raises(ConfigError) as caught:
        ModelConfig.from_raw_config(entry["config"])
    reason, _, way_out = str(caught.value).partition("; ")
    assert entry["refused"] in reason, repository
    assert way_out


def test_table_of_published_models_is_large_enough_to_count():
    assert len(PUBLISHED) >= 40


@pytest.mark.parametrize(
    "repository",
    [
        "meta-llama/Llama-3.2-1B",
        "lmsys/vicuna-7b-v1.5-16k",
        "binwon/kanana-cot",
        "ibm-granite/granite-8b-code-base",
        "tiiuae/Falcon3-7B-Instruct",
        "zpn/llama-7b",
    ],
)
def test_published_model_generates_once_it_is_shrunk(repository, tmp_path):
    config = dict(LOADED[repository]["config"])
    num_heads = config["num_attention_heads"]
    widths = {"hidden_size": 4 * num_heads, "intermediate_size": 24, "num_hidden_layers": 2, "vocab_size": 61}
    widths |= {"head_dim": 8} if "head_dim" in config else {}
    LlamaForCausalLM(LlamaConfig.from_dict(config | widths)).save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(config | widths))
    llm = LLM(tmp_path, kv_cache_memory=2**20)  # by default it would be filled with NaN for a second
    assert 2 <= llm.max_model_len <= config.get("max_position_embeddings", 2048)
    assert len(llm.generate([[3, 4, 5]], SamplingParams(max_tokens=4, ignore_eos=True))[0].outputs[0].token_ids) == 4


@given(
    st.integers(1, 200),
    st.sampled_from([1, 4, 16]),
    st.integers(1, 5),
    st.one_of(st.none(), st.integers(1, 20)),
    st.integers(1, 20 * 16 * BYTES_PER_TOKEN),
)
def test_default_length_is_the_longest_that_may_be_asked_for(
    max_positions, block_size, max_num_seqs, num_blocks, memory
):
    shape = replace(SHAPE, max_position_embeddings=max_positions)
    pool = {"kv_cache_memory": memory} if num_blocks is None else {"num_blocks": num_blocks}
    options = {"block_size": block_size, "max_num_seqs": max_num_seqs} | pool
    num_fitting = memory // (BYTES_PER_TOKEN * block_size) if num_blocks is None else num_blocks
    if num_fitting * block_size < min(2, max_positions):
        with pytest.raises(
            ConfigError, match=r"max_model_len of at most .* num_blocks of at least .* kv_cache_memory of"
        ):
            length_of(shape, **options)
        return
    longest = length_of(shape, **options)
    assert longest == min(max_positions, num_fitting * block_size)
    assert length_of(shape, max_model_len=longest, **options) == longest
    with pytest.raises(ConfigError):
        length_of(shape, max_model_len=longest + 1, **options)


def test_default_length_is_said_once(caplog):
    assert length_of(num_blocks=3) == 48
    (record,) = caplog.records
    assert record.getMessage() == (
        "max_model_len is 48 instead of the model's 100, since the pool has 3 blocks of 16 tokens; "
        f"a larger num_blocks, or a kv_cache_memory of {7 * 16 * BYTES_PER_TOKEN} bytes, would hold the longest request"
    )
    assert record.levelname == "WARNING"


def test_default_length_is_seen_where_no_logging_was_set_up(monkeypatch, capsys):
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    assert length_of(num_blocks=1) == 16
    assert capsys.readouterr().err.startswith("max_model_len is 16 instead of the model's 100")


@pytest.mark.parametrize("cache", ["none", "static", "continuous"])
def test_caches_without_a_pool_take_the_length_of_the_model(cache, caplog):
    assert length_of(cache=cache) == 100
    assert length_of(cache=cache, max_model_len=7) == 7
    assert not caplog.records


@pytest.mark.parametrize(
    ("options", "match"),
    [
        (
            {"max_model_len": 100, "num_blocks": 6},
            f"at most 96, a num_blocks of at least 7, or a kv_cache_memory of at least {7 * 16 * BYTES_PER_TOKEN}",
        ),
        ({"max_model_len": 100, "kv_cache_memory": 7 * 16 * BYTES_PER_TOKEN - 1}, "give a max_model_len of at most 96"),
        ({"kv_cache_memory": 1}, "0 blocks of 16 tokens cannot hold one request of max_model_len 2"),
        ({"block_size": 1, "num_blocks": 1}, "a num_blocks of at least 2"),
        ({"max_model_len": 101}, r"101 is more than the 100 positions .* or allow_long_max_model_len=True"),
    ],
)
def test_length_that_cannot_be_had_is_refused(options, match):
    with pytest.raises(ConfigError, match=match):
        length_of(**options)


def test_pool_has_no_more_blocks_than_the_largest_batch_can_use():
    assert num_pool_blocks(SHAPE, torch.float32, EngineConfig(max_num_seqs=3, block_size=4), 10) == 3 * 3


@pytest.mark.parametrize(("dtype", "num_blocks"), [(torch.float32, 5), (torch.float64, 2), (torch.bfloat16, 10)])
def test_pool_has_as_many_blocks_as_fit_its_memory(dtype, num_blocks):
    config = EngineConfig(block_size=4, kv_cache_memory=5 * 4 * BYTES_PER_TOKEN + 1)
    assert num_pool_blocks(SHAPE, dtype, config, 8) == num_blocks


def test_length_that_the_scaling_was_made_for_can_be_asked_for(scaled):
    linear = scaled("linear", factor=4.0)
    assert length_of(linear) == 100, "the file does not say whether its length is the one before scaling or after"
    assert length_of(linear, max_model_len=400) == 400
    with pytest.raises(ConfigError, match=r"401 is more than the 400 positions .* 100, RoPE type 'linear'"):
        length_of(linear, max_model_len=401)
    with pytest.raises(ConfigError, match="101 is more than the 100"):
        length_of(scaled("llama3", factor=4.0, original_max_position_embeddings=25.0), max_model_len=101)


def test_longer_request_than_the_model_was_made_for_is_possible_with_a_word():
    assert length_of(max_model_len=1000, allow_long_max_model_len=True) == 1000
    with pytest.raises(ConfigError, match="cannot hold one request of max_model_len 1000"):
        length_of(max_model_len=1000, allow_long_max_model_len=True, num_blocks=1)


@pytest.mark.parametrize("cache", ["static", "continuous", "paged"])
def test_rotary_angles_go_on_past_the_length_of_the_model(cache):
    """Every cache gives the same bits there, so none has a table that ends."""
    spec = CheckpointSpec(hidden_size=16, intermediate_size=24, head_dim=8, vocab_size=29)
    folder = cached_checkpoint(replace(spec, rope_type="linear", rope_factor=4.0, max_position_embeddings=16))
    prompt = [3 + place % 20 for place in range(40)]
    params = SamplingParams(max_tokens=24, ignore_eos=True)
    assert LLM(folder).max_model_len == 16
    for options in ({"max_model_len": 64}, {"max_model_len": 90, "allow_long_max_model_len": True}):
        answers = [LLM(folder, cache=name, **options).generate([prompt], params)[0] for name in ("none", cache)]
        expected, token_ids = (answer.outputs[0].token_ids for answer in answers)
        assert token_ids == expected
        assert len(token_ids) == 24


@pytest.mark.parametrize("options", [{"max_model_len": 10**6}, {"max_model_len": 20, "num_blocks": 1}])
def test_engine_refuses_before_the_weights_are_read(text_folder, monkeypatch, options):
    monkeypatch.setattr(LoadedModel, "load", lambda *_arguments, **_options: pytest.fail("weights were read"))
    with pytest.raises(ConfigError, match="max_model_len"):
        LLMEngine(text_folder, EngineConfig(**options))


def test_engine_sizes_by_the_dtype_of_the_checkpoint(text_folder, monkeypatch):
    seen = []

    def recorded(shape, dtype, config):
        seen.append(dtype)
        return decide_max_model_len(shape, dtype, config)

    monkeypatch.setattr(engine_module, "decide_max_model_len", recorded)
    for dtype in ("auto", "float64", "bfloat16"):
        engine = LLMEngine(text_folder, EngineConfig(dtype=dtype, max_model_len=32))
        LLMEngine(engine.loaded, EngineConfig(max_model_len=32))
        assert seen == [engine.loaded.model.dtype] * 2
        seen.clear()


def test_draft_model_takes_no_more_memory_than_the_pool_may():
    long = replace(SHAPE, max_position_embeddings=131072)
    draft = replace(long, num_layers=4)
    memory = 50 * 16 * BYTES_PER_TOKEN
    config = EngineConfig(speculative="a folder", kv_cache_memory=memory)
    assert num_draft_blocks(long, draft, torch.float32, config, 50 * 16) == 25
    config = EngineConfig(speculative="a folder", max_num_seqs=3)
    assert num_draft_blocks(long, draft, torch.float32, config, 50 * 16) == 150, "what the largest batch can use"
    assert num_draft_blocks(long, SHAPE, torch.float32, config, 50 * 16) == 3 * 7, "and no longer than the draft model"


def test_draft_model_has_what_the_blocks_take_that_were_asked_for(monkeypatch):
    monkeypatch.setattr(sizing, "DEFAULT_KV_CACHE_MEMORY", 1)
    config = EngineConfig(speculative="a folder", num_blocks=8)
    assert num_draft_blocks(SHAPE, replace(SHAPE, num_layers=1), torch.float32, config, 100) == 16


def test_draft_model_without_a_block_is_refused():
    config = EngineConfig(speculative="a folder", kv_cache_memory=16 * BYTES_PER_TOKEN)
    with pytest.raises(
        ConfigError, match=r"'a folder' takes .*; give a kv_cache_memory of at least .* smaller block_size"
    ):
        num_draft_blocks(SHAPE, replace(SHAPE, num_layers=4), torch.float32, config, 16)
