from dataclasses import fields

import pytest

from oracle.contract.constructions import covering_array
from oracle.contract.processing import USUAL_FILTERS, USUAL_ORDER
from oracle.engines.adapter import Refused
from oracle.engines.adapters.refinfer_engine import RefinferAdapter
from oracle.engines.adapters.refinfer_settings import (
    COUNTED,
    MAX_MODEL_LEN,
    OPTIONS_BY_MODE,
    PARAMETER_ORDER,
    knobs_of,
    sampling_params,
    to_output,
    to_sample,
)
from oracle.engines.parameters import PARAMETERS
from oracle.subjects import MODES, options_of
from refinfer import CompletionOutput, EngineConfig, Logprob, RequestOutput, SamplingParams
from refinfer.config.engine_config import engine_config
from refinfer.engine import EngineStats
from refinfer.errors import SamplingParamsError

NOT_KNOBS = {
    "cache",
    "paged_attention",
    "max_model_len",
    "allow_long_max_model_len",
    "batch_invariant",
    "dtype",
    "device",
    "kv_cache_memory",
}
"""Options that stand for a mode, break its claim, or say with other words what a knob says."""

NOT_PARAMETERS = {"max_tokens", "stop"}
"""The first stands in every request by itself; the other is about text, and token ids go in and out."""


def completion(**values):
    usual = {"index": 0, "text": None, "token_ids": [3, 4], "cumulative_logprob": None, "logprobs": None}
    return CompletionOutput(**(usual | {"finish_reason": "length", "stop_reason": None} | values))


def test_every_option_of_the_engine_is_a_knob_but_for_those_with_a_reason():
    assert set(knobs_of("paged")[0]) | NOT_KNOBS == {field.name for field in fields(EngineConfig)}


def test_every_mode_of_the_harness_is_an_engine_in_the_dock():
    own = {mode.replace("-", "_"): options for mode, options in OPTIONS_BY_MODE.items()}
    assert own == {mode: options_of(mode) for mode in MODES}


def test_every_parameter_of_both_sides_is_declared():
    own = {field.name for field in fields(SamplingParams)} - NOT_PARAMETERS
    assert own <= set(PARAMETERS), "every engine may be asked for it"
    assert own | {"logits", "cache_salt"} == set(RefinferAdapter("paged").declare().parameters)


def test_every_step_of_sampling_has_its_place_in_the_order():
    """But for `ignore_eos`, which bars no token here."""
    steps = {*USUAL_ORDER, *USUAL_FILTERS, "temperature"} & set(RefinferAdapter("paged").declare().parameters)
    assert set(PARAMETER_ORDER) == steps - {"ignore_eos"}


@pytest.mark.parametrize("mode", OPTIONS_BY_MODE)
def test_every_legal_pair_of_knobs_is_one_that_the_engine_takes(mode):
    rows = covering_array(RefinferAdapter(mode).declare())
    assert rows
    for row in rows:
        config = engine_config(**row, **OPTIONS_BY_MODE[mode], max_model_len=MAX_MODEL_LEN)
        if config.num_blocks is not None:
            assert config.num_blocks * row["block_size"] == MAX_MODEL_LEN


def test_every_witness_is_counted_by_the_engine():
    assert set(COUNTED.values()) <= {field.name for field in fields(EngineStats)}


def test_sampling_params_passes_everything_on(request_of):
    request = request_of(
        max_tokens=9, temperature=0.5, top_k=3, seed=4, n=2, logit_bias=[[5, 2.0], (6, -1.0)], logits=True, min_tokens=2
    )
    assert sampling_params(request, takes_salt=False) == SamplingParams(
        max_tokens=9, temperature=0.5, top_k=3, seed=4, n=2, logit_bias={5: 2.0, 6: -1.0}, min_tokens=2
    )


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"no_repeat_ngram_size": 2}, "SamplingParams has no no_repeat_ngram_size"),
        ({"cache_salt": "one"}, "SamplingParams has no cache_salt"),
        ({"logit_bias": [[5]]}, "no list of pairs"),
        ({"logit_bias": 5}, "no list of pairs"),
        ({"logit_bias": [[5, 1.0], [5, 2.0]]}, "names a token twice"),
        ({"logits": "yes"}, "logits is 'yes'"),
    ],
)
def test_sampling_params_refuses_what_it_would_have_to_drop(request_of, values, words):
    with pytest.raises(Refused, match=words):
        sampling_params(request_of(**values), takes_salt=False)


def test_sampling_params_leaves_values_to_the_engine(request_of):
    with pytest.raises(SamplingParamsError):
        sampling_params(request_of(temperature=-1.0), takes_salt=True)


def test_to_sample_passes_all_log_probabilities_on():
    rows = [{3: Logprob(-0.5, 1, None)}, {4: Logprob(-2.0, 3, None), 8: Logprob(-0.1, 1, None)}]
    sample = to_sample(completion(logprobs=rows, finish_reason="stop", stop_reason=4), [[0.0, 1.0], [2.0, 3.0]])
    assert sample.logprobs == (-0.5, -2.0)
    assert sample.top_logprobs == ({3: -0.5}, {4: -2.0, 8: -0.1})
    assert sample.logits == ((0.0, 1.0), (2.0, 3.0))
    assert (sample.finish_reason, sample.stop_token_id) == ("stop", 4)


def test_to_sample_names_no_stop_token_that_the_engine_does_not_name():
    assert to_sample(completion(stop_reason="text"), None).stop_token_id is None


def test_to_output_gives_each_answer_its_own_logits():
    output = RequestOutput(
        "r0", None, [1, 2], [None, {2: Logprob(-1.0, 1, None)}], [completion(), completion(index=1)], True, 0
    )
    translated = to_output(output, {0: [[1.0]], 1: [[2.0]]})
    assert translated.request_id == "r0"
    assert [sample.logits for sample in translated.samples] == [((1.0,),), ((2.0,),)]
    assert translated.prompt_logprobs == (None, {2: -1.0})
    assert to_output(output, None).samples[0].logits is None
