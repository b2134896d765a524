"""An adapter for the continuous batching of openvino-genai, stepped from here, on Llama models in float32."""

import hashlib
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import openvino_genai

from oracle.engines.adapter import Refused
from oracle.engines.adapters.llama_files import read_eos_token_ids
from oracle.engines.adapters.llama_openvino import write_llama_openvino, write_mute_tokenizer
from oracle.engines.adapters.openvino_genai_requests import PARAMETERS, Batch, Live, generation_settings
from oracle.engines.declaration import EngineDeclaration
from oracle.engines.messages import EngineRequest, EngineRun

SPECULATIONS = ("prompt-lookup", "draft")


class OpenVinoGenaiAdapter:
    """openvino-genai's ContinuousBatchingPipeline behind the protocol.

    Models are built here, in float32, with OpenVINO's own operations, since the engine opens no Hugging Face folder;
    the engine puts its paged attention into them, schedules and samples.
    """

    def __init__(self) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None
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
            # As its LogitProcessor puts them together; what is drawn from is what top_p leaves.
            parameter_order=(
                *("min_tokens", "repetition_penalty", "presence_penalty", "frequency_penalty"),
                *("top_k", "min_p", "top_p"),
            ),
            needed_parameters={"n": "temperature"},
            knobs={
                "num_kv_blocks": [64, 12, 6],
                "max_num_batched_tokens": [256, 64, 7],
                "dynamic_split_fuse": [True, False],
                "max_num_seqs": [256, 2, 1],
                "enable_prefix_caching": [False, True],
            },
            excluded_knobs=tuple({"dynamic_split_fuse": False, "max_num_batched_tokens": number} for number in (64, 7)),
            max_model_len=128,
            witnesses=("max_batch", "steps"),
        )

    def open(self, folder: str, knobs: dict[str, Any]) -> None:
        """See `EngineAdapter.open`."""
        self._pipeline = None
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
        batch = Batch(self._pipeline, [self._live(request) for request in requests])
        try:
            batch.run()
        except RuntimeError:
            self._pipeline = None  # requests are left in it; the next run begins with a new one
            raise
        return EngineRun(tuple(live.output() for live in batch.lives), dict(batch.witnesses))

    def close(self) -> None:
        """See `EngineAdapter.close`; the models that were written for it go as well."""
        self._pipeline = None
        self._opened = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def _live(self, request: EngineRequest) -> Live:
        self._num_requests += 1
        _, knobs = self._opened or ("", {})
        try:
            settings = generation_settings(request, self._eos_token_ids, speculation=knobs.get("speculation"))
        except Refused as error:
            return Live(request, self._num_requests, {}, refused=str(error))
        return Live(request, self._num_requests, settings)

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
        if knobs.get("speculation") == "prompt-lookup":
            properties["prompt_lookup"] = True
        if knobs.get("speculation") == "draft":
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
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="oracle-openvino-", ignore_cleanup_errors=True)
        digest = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]
        target = Path(self._folder.name) / f"{digest}-{num_layers or 'all'}"
        if not target.exists():
            target.mkdir()
            write_llama_openvino(folder, target, num_layers=num_layers)
            write_mute_tokenizer(target)
        return target


class OpenVinoGenaiSpeculativeAdapter(OpenVinoGenaiAdapter):
    """The same with guesses: of prompt lookup, or of a draft, which is the model cut off after its first layer."""

    def declare(self) -> EngineDeclaration:
        """See `EngineAdapter.declare`."""
        plain = super().declare()
        return replace(
            plain,
            name="openvino-genai-speculative",
            # How many guesses a step checks is decided by company, and each takes from the seed's stream.
            capabilities=tuple(name for name in plain.capabilities if name != "seeded_sampling"),
            parameters=tuple(name for name in plain.parameters if name != "n"),
            knobs={"speculation": list(SPECULATIONS), **plain.knobs},
        )
