"""Every parameter goes into a generation config, and what the engine puts out comes back as it is."""

from types import SimpleNamespace

import pytest

from oracle.engines.adapter import Refused
from oracle.engines.messages import EngineOutput, EngineRequest, EngineSample

pytestmark = pytest.mark.without_shape_checks  # which cannot tell classes of a module that is imported twice

MODULE = "oracle.engines.adapters.openvino_genai_requests"

EOS = (7, 9)


class Config:
    """Takes what a generation config takes, and refuses what validation refuses."""

    def __init__(self, **settings):
        self.settings = settings


class Handle:
    """A request that gives out one token a step, those of its script."""

    def __init__(self, script, ending, echo):
        self.script = list(script)
        self.ending = ending
        self.echo = list(echo)
        self.pending = []
        self.status = "RUNNING"

    def advance(self):
        if self.status != "RUNNING":
            return
        ids, self.echo = [*self.echo, self.script.pop(0)], []
        reason = self.ending if not self.script else "NONE"
        scores = [-float(token_id) for token_id in ids]
        self.pending.append({4: Piece(ids, scores, reason)})
        if not self.script:
            self.status = "FINISHED"

    def can_read(self):
        return bool(self.pending)

    def read(self):
        return self.pending.pop(0)

    def get_status(self):
        return SimpleNamespace(name=self.status)

    def cancel(self):
        self.status = "CANCEL"


class Piece:
    """A piece of an output."""

    def __init__(self, ids, scores, reason):
        self.generated_ids = ids
        self.generated_log_probs = scores
        self.finish_reason = SimpleNamespace(name=reason)


class Pipeline:
    """Steps every request that it was handed; a prompt of 99 is not taken, one of 98 does not fit."""

    def __init__(self):
        self.handles = []
        self.log = []

    def add_request(self, number, prompt, config):
        self.log.append((number, prompt, len(self.handles)))
        if 99 in prompt:
            message = "Check failed\n  at some line\n  prompt is wrong\n"
            raise RuntimeError(message)
        settings = config.settings
        handle = Handle(range(1, settings["max_new_tokens"] + 1), "LENGTH", prompt if settings.get("echo") else ())
        if 98 in prompt:
            handle.status = "IGNORED"
        self.handles.append(handle)
        return handle

    def has_non_finished_requests(self):
        return any(handle.status == "RUNNING" for handle in self.handles)

    def step(self):
        self.num_running = sum(handle.status == "RUNNING" for handle in self.handles)
        for handle in self.handles:
            handle.advance()

    def get_metrics(self):
        return SimpleNamespace(scheduled_requests=self.num_running)


@pytest.fixture
def requests_module(import_with, stand_in):
    """The module, beside stand-ins for the engine."""
    openvino = stand_in("openvino", Tensor=lambda array: array[0].tolist())
    genai = stand_in("openvino_genai", GenerationConfig=Config)
    return import_with(MODULE, openvino=openvino, openvino_genai=genai)


@pytest.fixture
def run(requests_module):
    """Gives a function that runs requests in a pipeline; gives outputs, witnesses and the pipeline."""

    def run_requests(*requests):
        pipeline = Pipeline()
        lives = [
            requests_module.Live(request, number, requests_module.generation_settings(request, EOS))
            for number, request in enumerate(requests)
        ]
        batch = requests_module.Batch(pipeline, lives)
        batch.run()
        return [live.output() for live in lives], batch.witnesses, pipeline

    return run_requests


def settings_of(module, speculation=None, **parameters):
    return module.generation_settings(EngineRequest("a", (1,), 5, parameters), EOS, speculation=speculation)


def test_plain_request_is_greedy_and_ends_with_every_eos_token(requests_module):
    assert settings_of(requests_module) == {"max_new_tokens": 5, "eos_token_id": 7, "stop_token_ids": {7, 9}}


@pytest.mark.parametrize(
    ("parameters", "due"),
    [
        ({"temperature": 0.5}, {"do_sample": True, "temperature": 0.5}),
        ({"temperature": -1.0}, {"do_sample": True, "temperature": -1.0}),
        ({"top_k": 3}, {"top_k": 3}),
        ({"seed": 0}, {"rng_seed": 0}),
        ({"n": 2}, {"num_return_sequences": 2}),
        ({"min_tokens": 3}, {"min_new_tokens": 3}),
        ({"stop_token_ids": [3]}, {"stop_token_ids": {3, 7, 9}}),
        ({"logprobs": 0}, {"logprobs": 1}),
        ({"prompt_logprobs": 0}, {"logprobs": 1, "echo": True}),
        ({"repetition_penalty": 1.5}, {"repetition_penalty": 1.5}),
    ],
    ids=lambda value: next(iter(value)),
)
def test_parameter_goes_into_the_config(requests_module, parameters, due):
    assert settings_of(requests_module, **parameters) == settings_of(requests_module) | due


def test_ignored_eos_leaves_other_stop_tokens(requests_module):
    settings = settings_of(requests_module, ignore_eos=True, stop_token_ids=[3])
    assert (settings["ignore_eos"], settings["stop_token_ids"]) == (True, {3})
    assert "stop_token_ids" not in settings_of(requests_module, ignore_eos=True)


def test_every_declared_parameter_changes_the_config(requests_module):
    values = {"stop_token_ids": [3], "ignore_eos": True, "temperature": 0.5}
    for name in requests_module.PARAMETERS:
        assert settings_of(requests_module, **{name: values.get(name, 2)}) != settings_of(requests_module), name


def test_parameter_that_a_config_lacks_is_refused(requests_module):
    with pytest.raises(Refused, match="has no cache_salt, logit_bias"):
        settings_of(requests_module, logit_bias=[[1, 2.0]], cache_salt="a")


def test_guesses_are_asked_for_in_each_request(requests_module):
    assert settings_of(requests_module, "draft")["num_assistant_tokens"] == 3
    assert settings_of(requests_module, "prompt-lookup")["max_ngram_size"] == 2


def test_outputs_come_back_as_the_engine_gave_them(run):
    outputs, witnesses, _ = run(EngineRequest("a", (5,), 2), EngineRequest("b", (5,), 3, {"logprobs": 0}))
    assert outputs == [
        EngineOutput("a", (EngineSample((1, 2), "length"),)),
        EngineOutput("b", (EngineSample((1, 2, 3), "length", logprobs=(-1.0, -2.0, -3.0)),)),
    ]
    assert witnesses == {"max_batch": 2, "steps": 3}


def test_echoed_prompt_is_taken_off_and_its_scores_shown(run):
    (output,), _, _ = run(EngineRequest("a", (5, 6, 8), 2, {"prompt_logprobs": 0, "logprobs": 0}))
    assert output.samples == (EngineSample((1, 2), "length", logprobs=(-1.0, -2.0)),)
    assert output.prompt_logprobs == (None, {6: -6.0}, {8: -8.0})


def test_requests_come_when_their_time_has_come(run):
    _, _, pipeline = run(EngineRequest("a", (5,), 4, arrival=2), EngineRequest("b", (6,), 3))
    assert [(prompt, others) for _, prompt, others in pipeline.log] == [([6], 0), ([5], 1)]


def test_request_that_comes_after_all_is_done_is_run_at_once(run):
    outputs, witnesses, _ = run(EngineRequest("a", (5,), 1), EngineRequest("b", (6,), 1, arrival=9))
    assert [output.samples[0].token_ids for output in outputs] == [(1,), (1,)]
    assert witnesses["steps"] == 2


def test_aborted_request_keeps_what_came(run):
    (output,), _, pipeline = run(EngineRequest("a", (5,), 9, abort_after=2))
    assert output.samples == (EngineSample((1, 2), "abort"),)
    assert pipeline.handles[0].status == "CANCEL"


def test_request_that_ends_before_its_abort_ends_by_itself(run):
    (output,), _, _ = run(EngineRequest("a", (5,), 2, abort_after=2))
    assert output.samples[0].finish_reason == "length"


def test_refusal_has_the_engines_last_words(run):
    refused, answered = run(EngineRequest("a", (99,), 2), EngineRequest("b", (5,), 1))[0]
    assert refused == EngineOutput("a", refused="prompt is wrong")
    assert answered.samples


def test_request_that_does_not_fit_is_refused(run):
    outputs, _, _ = run(EngineRequest("a", (98,), 2), EngineRequest("b", (5,), 1))
    assert outputs[0].refused == "IGNORED: its keys and values do not fit into the cache"
