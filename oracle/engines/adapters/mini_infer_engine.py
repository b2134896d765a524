"""mini-infer behind the protocol: its `InferenceEngine`, step by step."""

import json
import tempfile
from collections import Counter
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from mini_infer import InferenceEngine, SamplingParams
from mini_infer.models import load_model_from_safetensors

from oracle.engines.adapter import Refused
from oracle.engines.adapters.mini_infer_settings import (
    WITNESSES,
    declaration_of,
    eos_token_ids_of,
    legacy_config,
    sampling_arguments,
    to_output,
    unknown_parameters,
)
from oracle.engines.declaration import EngineDeclaration
from oracle.engines.messages import EngineOutput, EngineRequest, EngineRun


class MiniInferAdapter:
    """mini-infer as an engine; prefixes that it caches are kept between runs. One that raised is made anew."""

    def __init__(self) -> None:
        self._folder = ""
        self._copy: tempfile.TemporaryDirectory[str] | None = None
        self._knobs: dict[str, Any] = {}
        self._eos_token_ids: tuple[int, ...] = ()
        self._engine: Any = None
        self._witnesses: Counter[str] = Counter()

    def declare(self) -> EngineDeclaration:
        """See `EngineAdapter.declare`."""
        return declaration_of(metadata.version("mini-infer"))

    def open(self, folder: str, knobs: dict[str, Any]) -> None:
        """See `EngineAdapter.open`."""
        self.close()
        self._eos_token_ids = eos_token_ids_of(_generation_config(Path(folder)))
        self._knobs = {name: value for name, value in knobs.items() if name != "config_format"}
        self._folder = folder
        if knobs["config_format"] == "legacy":
            self._copy = tempfile.TemporaryDirectory(prefix="mini-infer-", ignore_cleanup_errors=True)
            self._folder = _with_legacy_config(Path(folder), Path(self._copy.name))
        self._engine = self._make_engine()

    def close(self) -> None:
        """See `EngineAdapter.close`."""
        self._folder, self._engine = "", None
        if self._copy is not None:
            self._copy.cleanup()
            self._copy = None

    def _make_engine(self) -> Any:
        try:
            model, config = load_model_from_safetensors(self._folder, device="cpu", dtype=torch.float32)
        except (FileNotFoundError, ValueError) as error:
            raise Refused(str(error)) from error
        engine = InferenceEngine(model, config, device=torch.device("cpu"), **self._knobs)
        if engine.prefix_cache is not None:
            self._count_prefix_matches(engine.prefix_cache)
        return engine

    def _count_prefix_matches(self, cache: Any) -> None:
        match_prefix = cache.match_prefix

        def counting_match(token_ids: list[int], block_pool: Any) -> tuple[list[int], int]:
            blocks, number = match_prefix(token_ids, block_pool)
            self._witnesses["cached_tokens"] += number
            return blocks, number

        cache.match_prefix = counting_match

    def run(self, requests: Sequence[EngineRequest]) -> EngineRun:
        """See `EngineAdapter.run`.

        Raises:
            RuntimeError: Nothing is open.
        """
        if not self._folder:
            message = "no model is open"
            raise RuntimeError(message)
        engine, self._engine = self._engine or self._make_engine(), None
        self._witnesses.clear()
        self._witnesses.update(dict.fromkeys(WITNESSES, 0))
        outputs = self._run(engine, requests)
        self._engine = engine  # only after a run without an error
        return EngineRun(tuple(outputs), dict(self._witnesses))

    def _run(self, engine: Any, requests: Sequence[EngineRequest]) -> list[EngineOutput]:
        output_by_id: dict[str, EngineOutput] = {}
        for request in requests:
            unknown = unknown_parameters(request)
            if unknown:
                refused = f"SamplingParams has no {', '.join(unknown)}"
                output_by_id[request.request_id] = EngineOutput(request.request_id, refused=refused)
        waiting = sorted(
            (request for request in requests if request.request_id not in output_by_id), key=lambda own: own.arrival
        )
        sequences: dict[str, Any] = {}
        preempted = engine.scheduler.preempted_count
        while waiting or engine.scheduler.has_unfinished_sequences():
            while waiting and waiting[0].arrival <= self._witnesses["steps"]:
                request = waiting.pop(0)
                sequences[request.request_id] = engine.add_request(
                    list(request.prompt_token_ids),
                    sampling_params=SamplingParams(**sampling_arguments(request, self._eos_token_ids)),
                    request_id=request.request_id,
                )
            self._step(engine)
            if not waiting:
                _demand_progress(engine)
        self._witnesses["preemptions"] = engine.scheduler.preempted_count - preempted
        # Blocks that the prefix cache keeps are held by no request.
        kept = 0 if engine.prefix_cache is None else len(engine.prefix_cache.cache)
        self._witnesses["held_blocks"] = engine.block_pool.num_blocks - engine.block_pool.num_free - kept
        output_by_id |= {name: to_output(name, own.output_token_ids) for name, own in sequences.items()}
        return [output_by_id[request.request_id] for request in requests]

    def _step(self, engine: Any) -> None:
        given = engine.step()
        self._witnesses["steps"] += 1
        running = engine.scheduler.running
        self._witnesses["max_batch"] = max(self._witnesses["max_batch"], len(running))
        told = {id(sequence) for sequence, _ in given}
        self._witnesses["chunks"] += sum(
            id(sequence) not in told and not sequence.is_prefill_complete for sequence in running
        )


def _demand_progress(engine: Any) -> None:
    """Sees to it that somebody runs, since nothing else would change who can."""
    scheduler = engine.scheduler
    if scheduler.waiting and not scheduler.running:
        names = ", ".join(sequence.request_id for sequence in scheduler.waiting)
        message = f"{names} wait for {engine.block_pool.num_free} free blocks, and no request runs"
        raise RuntimeError(message)


def _with_legacy_config(folder: Path, copy: Path) -> str:
    """Fills a folder with a checkpoint whose configuration is in the older format; gives it."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (copy / "config.json").write_text(json.dumps(legacy_config(config)), encoding="utf-8")
    for weights in folder.glob("*.safetensors"):
        (copy / weights.name).symlink_to(weights.resolve())
    return str(copy)


def _generation_config(folder: Path) -> dict[str, Any]:
    """Reads what says how requests end: generation_config.json where there is one."""
    names = ("generation_config.json", "config.json")
    path = next((folder / name for name in names if (folder / name).exists()), None)
    if path is None:
        message = f"{folder} holds neither {' nor '.join(names)}"
        raise Refused(message)
    config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return config
