"""An adapter for the continuous batching of openvino-genai, stepped from here, on Llama models in float32."""

import hashlib
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import openvino
import openvino_genai

from oracle.engines.adapter import Refused
from oracle.engines.adapters.llama_files import read_eos_token_ids
from oracle.engines.adapters.llama_openvino import write_llama_openvino, write_mute_tokenizer
from oracle.engines.declaration import EngineDeclaration
from oracle.engines.messages import EngineOutput, EngineRequest, EngineRun, EngineSample

PARAMETERS = (
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "seed",
    "n",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "min_tokens",
    "ignore_eos",
    "stop_token_ids",
    "logprobs",
    "prompt_logprobs",
)

NAME_BY_PARAMETER = {
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "seed": "rng_seed",
    "n": "num_return_sequences",
    "repetition_penalty": "repetition_penalty",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "min_tokens": "min_new_tokens",
    "ignore_eos": "ignore_eos",
}
"""What a generation config calls them; the others are put together out of several fields."""

SPECULATIONS = ("none", "prompt-lookup", "draft")

NUM_ASSISTANT_TOKENS = 3

MAX_NGRAM_SIZE = 2

_ENDINGS = {"STOP": "stop", "LENGTH": "length"}


class OpenVinoGenaiAdapter:
    """openvino-genai's ContinuousBatchingPipeline behind the protocol.

    Models are built here, in float32, with OpenVINO's own operations, since the engine opens no Hugging Face folder;
    the engine puts its paged attention into them, schedules and samples. The draft of speculative decoding is the same
    model cut off after its first layer.
    """

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="oracle-openvino-", ignore_cleanup_errors=True)
        self._opened: tuple[str, dict[str, Any]] | None = None
        self._pipeline: Any = None
        self._eos_token_ids: tuple[int, ...] = ()
        self._num_requests = 0

    def declare(self) -> EngineDeclaration:
        """See `EngineAdapter.declare`."""
        return EngineDeclaration(
            name="openvino-genai",
            version=str(openvino_genai.__version__),
            capabilities=("logprobs", "prompt_logprobs", "seeded_sampling", "batching", "arrivals", "aborts", "steps"),
            parameters=PARAMETERS,
            parameter_values={"n": [2], "logprobs": [0], "prompt_logprobs": [0]},
            parameter_order=("repetition_penalty", "presence_penalty", "temperature", "top_p", "top_k"),
            knobs={
                "num_kv_blocks": [64, 12, 6],
                "max_num_batched_tokens": [256, 64, 7],
                "dynamic_split_fuse": [True, False],
                "max_num_seqs": [256, 2, 1],
                "enable_prefix_caching": [False, True],
                "speculation": list(SPECULATIONS),
            },
            excluded_knobs=tuple(
                {"dynamic_split_fuse": False, "max_num_batched_tokens": number} for number in (64, 7)
            ),
            max_model_len=128,
            witnesses=("max_batch", "steps"),
        )

    def open(self, folder: str, knobs: dict[str, Any]) -> None:
        """See `EngineAdapter.open`."""
        self.close()
        if not (Path(folder) / "config.json").is_file():
            message = f"{folder} holds no config.json"
            raise Refused(message)
        self._opened = (folder, dict(knobs))
        self._eos_token_ids = read_eos_token_ids(Path(folder))
        if not self._eos_token_ids:
            message = "the engine wants an EOS token, and the checkpoint names none"
            raise Refused(message)
        self._build()

    def run(self, requests: Sequence[EngineRequest]) -> EngineRun:
        """See `EngineAdapter.run`."""
        if self._pipeline is None:
            self._build()
        batch = _Batch(self._pipeline, [self._live(request) for request in requests])
        try:
            batch.run()
        except RuntimeError:
            self._pipeline = None  # requests are left in it; the next run begins with a new one
            raise
        return EngineRun(tuple(live.output() for live in batch.lives), dict(batch.witnesses))

    def close(self) -> None:
        """See `EngineAdapter.close`."""
        self._pipeline = None

    def _live(self, request: EngineRequest) -> "_Live":
        self._num_requests += 1
        _, knobs = self._opened or ("", {})
        try:
            settings = generation_settings(request, self._eos_token_ids, speculation=knobs["speculation"])
        except Refused as error:
            return _Live(request, self._num_requests, {}, refused=str(error))
        return _Live(request, self._num_requests, settings)

    def _build(self) -> None:
        if self._opened is None:
            message = "no checkpoint is open"
            raise Refused(message)
        folder, knobs = self._opened
        scheduler = openvino_genai.SchedulerConfig()
        for name in ("num_kv_blocks", "max_num_batched_tokens", "dynamic_split_fuse", "max_num_seqs"):
            setattr(scheduler, name, knobs[name])
        scheduler.enable_prefix_caching = knobs["enable_prefix_caching"]
        properties: dict[str, Any] = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}
        if knobs["speculation"] == "prompt-lookup":
            properties["prompt_lookup"] = True
        if knobs["speculation"] == "draft":
            draft = self._model_folder(Path(folder), num_layers=1)
            properties["draft_model"] = openvino_genai.draft_model(
                str(draft), "CPU", INFERENCE_PRECISION_HINT="f32", KV_CACHE_PRECISION="f32"
            )
        model = str(self._model_folder(Path(folder)))
        try:
            self._pipeline = openvino_genai.ContinuousBatchingPipeline(model, scheduler, "CPU", properties)
        except RuntimeError as error:
            message = f"the engine does not open it: {error}"
            raise Refused(message) from error

    def _model_folder(self, folder: Path, *, num_layers: int | None = None) -> Path:
        """Gives the model of a checkpoint in the engine's form, written when it is first wanted."""
        digest = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]
        target = Path(self._folder.name) / f"{digest}-{num_layers or 'all'}"
        if not target.exists():
            target.mkdir()
            write_llama_openvino(folder, target, num_layers=num_layers)
            write_mute_tokenizer(target)
        return target


def generation_settings(
    request: EngineRequest, eos_token_ids: Sequence[int], *, speculation: str = "none"
) -> dict[str, Any]:
    """Gives the fields of a generation config that ask for what a request asks for.

    Raises:
        Refused: A generation config cannot ask for it.
    """
    asked = {name: value for name, value in request.parameters.items() if value is not None}
    unknown = sorted(set(asked) - set(PARAMETERS))
    if unknown:
        message = f"a generation config has no {', '.join(unknown)}"
        raise Refused(message)
    settings: dict[str, Any] = {"max_new_tokens": request.max_tokens, "eos_token_id": eos_token_ids[0]}
    temperature = asked.pop("temperature", 0.0)
    if temperature > 0.0:
        settings |= {"do_sample": True, "temperature": temperature}
    stop_token_ids = set(asked.pop("stop_token_ids", ()))
    if not asked.get("ignore_eos"):
        stop_token_ids |= set(eos_token_ids)
    if stop_token_ids:
        settings["stop_token_ids"] = stop_token_ids
    if asked.pop("logprobs", None) is not None:
        settings["logprobs"] = 1
    if asked.pop("prompt_logprobs", None) is not None:
        settings |= {"logprobs": 1, "echo": True}
    if speculation != "none":
        settings["num_assistant_tokens"] = NUM_ASSISTANT_TOKENS
    if speculation == "prompt-lookup":
        settings["max_ngram_size"] = MAX_NGRAM_SIZE
    return settings | {NAME_BY_PARAMETER[name]: value for name, value in asked.items()}


@dataclass
class _Live:
    """One request in the engine, and what came of it."""

    request: EngineRequest
    number: int
    settings: dict[str, Any]
    handle: Any = None
    refused: str | None = None
    is_aborted: bool = False
    ids_by_sequence: dict[int, list[int]] = field(default_factory=dict)
    scores_by_sequence: dict[int, list[float]] = field(default_factory=dict)
    ending_by_sequence: dict[int, str | None] = field(default_factory=dict)

    def begin(self, pipeline: Any) -> None:
        """Hands it to the engine, which may not take it."""
        if self.refused is not None:
            return
        prompt = openvino.Tensor(np.array([self.request.prompt_token_ids], dtype=np.int64))
        try:
            config = openvino_genai.GenerationConfig(**self.settings)
            self.handle = pipeline.add_request(self.number, prompt, config)
        except (RuntimeError, TypeError) as error:
            self.refused = _words(error)

    def read(self) -> None:
        """Takes what the engine has put out since."""
        while self.handle is not None and self.handle.can_read():
            for sequence, output in self.handle.read().items():
                self.ids_by_sequence.setdefault(sequence, []).extend(output.generated_ids)
                self.scores_by_sequence.setdefault(sequence, []).extend(output.generated_log_probs)
                self.ending_by_sequence[sequence] = _ENDINGS.get(output.finish_reason.name)
        if self.handle is not None and not self.is_aborted and self.handle.get_status().name == "IGNORED":
            self.refused = "IGNORED: its keys and values do not fit into the cache"
        limit = self.request.abort_after
        longest = max(map(len, self.ids_by_sequence.values()), default=0)
        if limit is not None and longest >= limit and not self.is_aborted and self.is_running():
            self.is_aborted = True
            self.handle.cancel()

    def is_running(self) -> bool:
        """Tells whether the engine still works on it."""
        return self.handle is not None and self.handle.get_status().name == "RUNNING"

    def output(self) -> EngineOutput:
        """Gives what came of it, as the protocol has it."""
        if self.refused is not None:
            return EngineOutput(self.request.request_id, refused=self.refused)
        has_echo = bool(self.settings.get("echo"))
        samples = tuple(self._sample(sequence, has_echo=has_echo) for sequence in sorted(self.ids_by_sequence))
        if not has_echo or not samples:
            return EngineOutput(self.request.request_id, samples)
        scores = self.scores_by_sequence[min(self.ids_by_sequence)]
        prompt = self.request.prompt_token_ids
        shown = (None, *({token_id: score} for token_id, score in zip(prompt[1:], scores[1:], strict=False)))
        return EngineOutput(self.request.request_id, samples, shown)

    def _sample(self, sequence: int, *, has_echo: bool) -> EngineSample:
        num_echoed = len(self.request.prompt_token_ids) if has_echo else 0
        ids = tuple(self.ids_by_sequence[sequence][num_echoed:])
        ending = "abort" if self.is_aborted else self.ending_by_sequence[sequence]
        if self.request.parameters.get("logprobs") is None:
            return EngineSample(ids, ending)
        return EngineSample(ids, ending, logprobs=tuple(self.scores_by_sequence[sequence][num_echoed:]))


class _Batch:
    """Requests that the engine runs together, step by step."""

    def __init__(self, pipeline: Any, lives: list[_Live]) -> None:
        self._pipeline = pipeline
        self.lives = lives
        self.witnesses = {"max_batch": 0, "steps": 0}

    def run(self) -> None:
        """Runs all of them to their ends."""
        waiting = sorted(self.lives, key=lambda live: live.request.arrival)
        while waiting or self._pipeline.has_non_finished_requests():
            while waiting and (
                waiting[0].request.arrival <= self.witnesses["steps"] or not self._pipeline.has_non_finished_requests()
            ):
                waiting.pop(0).begin(self._pipeline)
            if self._pipeline.has_non_finished_requests():
                self._pipeline.step()
                num_scheduled = int(self._pipeline.get_metrics().scheduled_requests)
                self.witnesses["max_batch"] = max(self.witnesses["max_batch"], num_scheduled)
            self.witnesses["steps"] += 1
            for live in self.lives:
                live.read()


def _words(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
