"""An adapter for llama.cpp: several sequences in one context, decoded in batches and sampled by its chains."""

import random
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from oracle.engines.adapter import Refused
from oracle.engines.adapters.llama_cpp_context import NUM_SEQUENCES, LlamaContext
from oracle.engines.adapters.llama_cpp_sampling import ORDER, PARAMETERS, SamplerChain
from oracle.engines.adapters.llama_cpp_slots import Answer, Row, Slots
from oracle.engines.adapters.llama_files import read_eos_token_ids
from oracle.engines.adapters.llama_gguf import write_llama_gguf
from oracle.engines.declaration import EngineDeclaration
from oracle.engines.messages import EngineOutput, EngineRequest, EngineRun, EngineSample

_LOOP_PARAMETERS = ("n", "ignore_eos", "stop_token_ids", "logprobs", "prompt_logprobs", "logits")
"""What the loop here looks after, as every user of the library does it for himself."""


class LlamaCppAdapter:
    """llama.cpp behind the protocol, on Llama models in float32, keys and values included.

    The library decodes batches, keeps keys and values, and samples; which tokens a batch holds is decided here, in the
    manner of its own server: prompts in chunks beside running requests, and prefixes that finished ones have left.
    """

    def __init__(self) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._context: LlamaContext | None = None
        self._slots: Slots | None = None
        self._eos_token_ids: tuple[int, ...] = ()

    def declare(self) -> EngineDeclaration:
        """See `EngineAdapter.declare`."""
        return EngineDeclaration(
            name="llama-cpp",
            version=version("llama-cpp-python"),
            contract="error-bounded",
            capabilities=(
                *("logprobs", "top_logprobs", "logits", "prompt_logprobs", "seeded_sampling"),
                *("batching", "arrivals", "aborts", "steps"),
            ),
            parameters=(*PARAMETERS, *_LOOP_PARAMETERS),
            parameter_values={"n": [2]},
            parameter_order=ORDER,
            knobs={
                "n_batch": [512, 24, NUM_SEQUENCES],  # with less than sequences, making a context ends the process
                "n_ubatch": [512, 16, 3],
                "kv_unified": [True, False],
                "cache_prompt": [False, True],
            },
            max_model_len=128,
            witnesses=("steps", "max_batch", "cached_tokens", "chunked_prompts", "forks"),
        )

    def open(self, folder: str, knobs: dict[str, Any]) -> None:
        """See `EngineAdapter.open`."""
        self.close()
        if not (Path(folder) / "config.json").is_file():
            message = f"{folder} holds no config.json"
            raise Refused(message)
        self._folder = tempfile.TemporaryDirectory(prefix="oracle-llama-", ignore_cleanup_errors=True)
        path = Path(self._folder.name) / "model.gguf"
        write_llama_gguf(Path(folder), path)
        self._eos_token_ids = read_eos_token_ids(Path(folder))
        self._context = LlamaContext(str(path), knobs)
        self._slots = Slots(self._context, NUM_SEQUENCES, knobs["n_batch"], keeps_prompts=knobs["cache_prompt"])

    def run(self, requests: Sequence[EngineRequest]) -> EngineRun:
        """See `EngineAdapter.run`."""
        if self._slots is None:
            message = "no checkpoint is open"
            raise Refused(message)
        slots = self._slots
        slots.witnesses = dict.fromkeys(slots.witnesses, 0)
        answers_by_id: dict[str, list[Answer]] = {}
        refusal_by_id: dict[str, str] = {}
        waiting = sorted(requests, key=lambda request: request.arrival)
        try:
            while waiting or slots.running:
                while waiting and (waiting[0].arrival <= slots.witnesses["steps"] or not slots.running):
                    try:
                        answers = slots.admit(waiting[0], self._sampler)
                    except ValueError as error:
                        refusal_by_id[waiting.pop(0).request_id] = str(error)
                        continue
                    if answers is None:
                        break
                    answers_by_id[waiting.pop(0).request_id] = answers
                if slots.running:
                    slots.step(self._stop_token_ids)
        except RuntimeError:
            slots.reset()
            raise
        outputs = [_output(request, answers_by_id, refusal_by_id) for request in requests]
        return EngineRun(tuple(outputs), dict(slots.witnesses))

    def close(self) -> None:
        """See `EngineAdapter.close`."""
        if self._context is not None:
            self._context.close()
            self._context = self._slots = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def _sampler(self, request: EngineRequest, number: int) -> "_Chain":
        if not request.prompt_token_ids or request.max_tokens < 1:
            message = "a request needs a prompt and room for a token"
            raise ValueError(message)
        unknown = sorted(set(request.parameters) - {*PARAMETERS, *_LOOP_PARAMETERS})
        if unknown or self._context is None:
            message = f"llama.cpp has no {', '.join(unknown)}"
            raise ValueError(message)
        return _Chain(self._context, request, number)

    def _stop_token_ids(self, request: EngineRequest) -> frozenset[int]:
        eos = () if request.parameters.get("ignore_eos") else self._eos_token_ids
        return frozenset((*eos, *(request.parameters.get("stop_token_ids") or ())))


class _Chain:
    """A chain of samplers, and the context that it looks at."""

    def __init__(self, context: LlamaContext, request: EngineRequest, number: int) -> None:
        parameters = {name: value for name, value in request.parameters.items() if value is not None}
        seed = parameters.get("seed", random.randrange(2**31)) + number
        self._context = context
        self._chain = SamplerChain(parameters, request.prompt_token_ids, context.vocab_size, seed)

    def sample(self, place: int) -> int:
        return self._chain.sample(self._context.handle, place)

    def close(self) -> None:
        self._chain.close()


def _output(
    request: EngineRequest, answers_by_id: dict[str, list[Answer]], refusal_by_id: dict[str, str]
) -> EngineOutput:
    """Gives what came of a request, as the protocol has it."""
    if request.request_id in refusal_by_id:
        return EngineOutput(request.request_id, refused=refusal_by_id[request.request_id])
    answers = answers_by_id[request.request_id]
    output = EngineOutput(request.request_id, tuple(_sample(answer) for answer in answers))
    number = request.parameters.get("prompt_logprobs")
    if number is None:
        return output
    later = request.prompt_token_ids[len(request.prompt_token_ids) - len(answers[0].prompt_rows) + 1 :]
    shown = [_shown(row, token_id, number) for row, token_id in zip(answers[0].prompt_rows[:-1], later, strict=True)]
    return replace(output, prompt_logprobs=(None, *shown))


def _sample(answer: Answer) -> EngineSample:
    parameters = answer.request.parameters
    sample = EngineSample(tuple(answer.output), answer.ending)
    if parameters.get("logits"):
        sample = replace(sample, logits=tuple(tuple(row.tolist()) for row in answer.rows))
    number = parameters.get("logprobs")
    if number is None:
        return sample
    entries = [_shown(row, token_id, number) for row, token_id in zip(answer.rows, answer.output, strict=True)]
    logprobs = tuple(entry[token_id] for entry, token_id in zip(entries, answer.output, strict=True))
    return replace(sample, logprobs=logprobs, top_logprobs=tuple(entries))


def _shown(row: Row, token_id: int, number: int) -> dict[int, float]:
    """Log-probabilities of a token and of so many likeliest ones, by float64 of the library's logits."""
    scores = row.astype(np.float64)
    logprobs = scores - scores.max()
    logprobs -= np.log(np.exp(logprobs).sum())
    likeliest = np.argsort(-logprobs, kind="stable")[:number].tolist()
    return {shown: float(logprobs[shown]) for shown in dict.fromkeys((*likeliest, token_id))}
