"""A small engine that is right, and an adapter at once: all that the harness asks of an engine, in one short read.

Requests come and go while others run, long prompts run in chunks, a request whose tokens find no room waits for its
place again, and what has run of a prompt is kept for prompts that begin alike. The network is `refinfer`'s.
"""

import copy
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from oracle.engines.adapter import Refused
from oracle.engines.declaration import EngineDeclaration
from oracle.engines.messages import EngineOutput, EngineRequest, EngineRun, EngineSample
from oracle.engines.parameters import DEFAULT_BY_PARAMETER
from oracle.engines.teaching_requests import LEGAL_BY_PARAMETER, fault_of
from oracle.engines.teaching_sampler import Sample, choose, end_of, show
from refinfer import load_model
from refinfer.cache import ContinuousCache
from refinfer.config import load_eos_token_ids
from refinfer.errors import RefinferError
from refinfer.model import Llama

MAX_MODEL_LEN = 128
MAX_KEPT_PREFIXES = 64

KNOBS: dict[str, list[Any]] = {
    "max_num_seqs": [8, 1, 3],
    "max_chunk": [MAX_MODEL_LEN, 4, 1],
    "prefix_cache": [False, True],
    "max_cached_tokens": [8 * MAX_MODEL_LEN, 32],
}
"""Most answers in one step; most tokens of one answer in one step; whether prefixes are kept; and beyond how many
tokens of all answers together the newest answer has to wait again. One alone always runs."""

PARAMETER_ORDER = ("min_tokens", "logit_bias", "repetition_penalty", "temperature", "top_k")


class TeachingEngine:
    """The engine; each of its decisions is a small method, so that a fault can take the place of one."""

    def declare(self) -> EngineDeclaration:
        """Says what is promised, taken and shown."""
        return EngineDeclaration(
            name="teaching",
            contract="bitwise",
            capabilities=(
                "logprobs",
                "top_logprobs",
                "logits",
                "seeded_sampling",
                "batching",
                "arrivals",
                "aborts",
                "steps",
            ),
            parameters=tuple(LEGAL_BY_PARAMETER),
            parameter_order=PARAMETER_ORDER,
            knobs=KNOBS,
            max_model_len=MAX_MODEL_LEN,
            witnesses=("steps", "max_batch", "chunks", "preemptions", "cached_tokens"),
        )

    def open(self, folder: str, knobs: dict[str, Any]) -> None:
        """Loads a model, and forgets all prefixes."""
        for name, value in knobs.items():
            if name not in KNOBS or not isinstance(value, int) or (value < 1 and name != "prefix_cache"):
                message = f"knob {name}={value!r} is none of {KNOBS}"
                raise Refused(message)
        self.knobs = {name: knobs.get(name, values[0]) for name, values in KNOBS.items()}
        try:
            self.model: Llama = load_model(folder)
            self.eos_token_ids = load_eos_token_ids(Path(folder))
        except RefinferError as error:
            raise Refused(str(error)) from error
        self.max_model_len = min(MAX_MODEL_LEN, self.model.config.max_position_embeddings)
        self.prefixes: dict[tuple[str | None, tuple[int, ...]], ContinuousCache] = {}

    def close(self) -> None:
        """Lets go of the model and the prefixes."""
        self.__dict__.pop("model", None)
        self.prefixes = {}

    def run(self, requests: Sequence[EngineRequest]) -> EngineRun:
        """Runs requests to their ends, step by step."""
        self.witnesses = dict.fromkeys(self.declare().witnesses, 0)
        faults = [self.fault_of(request, requests[:place]) for place, request in enumerate(requests)]
        samples = [[] if fault else self.samples_of(request) for request, fault in zip(requests, faults, strict=True)]
        self.running: list[Sample] = []
        self.waiting = sorted((sample for own in samples for sample in own), key=lambda own: own.request.arrival)
        while self.waiting or self.running:
            self.abort()
            self.admit()
            self.step()
            self.witnesses["steps"] += 1
        outputs = [
            EngineOutput(request.request_id, tuple(map(self.show, own)), refused=fault)
            for request, own, fault in zip(requests, samples, faults, strict=True)
        ]
        return EngineRun(tuple(outputs), self.witnesses)

    def fault_of(self, request: EngineRequest, earlier: Sequence[EngineRequest]) -> str | None:
        """Tells why a request cannot be taken beside those before it; None where it can."""
        if any(own.request_id == request.request_id for own in earlier):
            return f"request id {request.request_id!r} comes twice"
        return fault_of(request, self.model.config.vocab_size, self.max_model_len)

    def samples_of(self, request: EngineRequest) -> list[Sample]:
        """Makes the answers of a request, none of which has begun."""
        parameters = {**DEFAULT_BY_PARAMETER, **request.parameters}
        seed = secrets.randbits(64) if parameters["seed"] is None else parameters["seed"]
        prompt = request.prompt_token_ids
        return [Sample(request, parameters, i, seed, [*prompt], len(prompt)) for i in range(parameters["n"])]

    def abort(self) -> None:
        """Ends every request one of whose answers has come as far as the request is to come."""
        for sample in [*self.running, *self.waiting]:
            request, num_tokens = sample.request, len(sample.output_token_ids)
            if sample.finish_reason or request.abort_after is None or num_tokens < request.abort_after:
                continue
            if request.arrival <= self.witnesses["steps"]:
                self.end([own for own in (*self.running, *self.waiting) if own.request is request], "abort")

    def end(self, samples: Sequence[Sample], reason: str) -> None:
        """Takes answers out of the batch and the queue."""
        for sample in samples:
            sample.finish_reason, sample.cache = reason, None
        self.running = [own for own in self.running if own not in samples]
        self.waiting = [own for own in self.waiting if own not in samples]

    def admit(self) -> None:
        """Lets those in who have come, in their order, as long as there is room; who grew out of it waits again."""
        while not self.fits(self.running) and len(self.running) > 1:
            preempted = self.running.pop()
            preempted.cache = None
            self.waiting.insert(0, preempted)
            self.witnesses["preemptions"] += 1
        while self.waiting and self.waiting[0].request.arrival <= self.witnesses["steps"]:
            if self.running and not self.fits([*self.running, self.waiting[0]]):
                return
            admitted = self.waiting.pop(0)
            admitted.cache = self.cached_prefix(admitted)
            self.running.append(admitted)

    def fits(self, samples: Sequence[Sample]) -> bool:
        """Tells whether answers have room beside each other."""
        num_tokens = sum(len(sample.token_ids) for sample in samples)
        return bool(len(samples) <= self.knobs["max_num_seqs"] and num_tokens <= self.knobs["max_cached_tokens"])

    def cached_prefix(self, sample: Sample) -> ContinuousCache:
        """Gives a copy of the longest kept prefix of an answer's tokens, or an empty cache."""
        found = [key for key in self.prefixes if self.begins_with(sample, *key)]
        if not found:
            return ContinuousCache(self.model.config, self.model.dtype)
        cache = self.prefixes[max(found, key=lambda key: len(key[1]))]
        self.witnesses["cached_tokens"] += cache.num_computed_tokens
        return copy.deepcopy(cache)

    def begins_with(self, sample: Sample, salt: str | None, prefix: tuple[int, ...]) -> bool:
        """Tells whether a kept prefix may be used: it is the beginning, not all, of the tokens, under the same salt."""
        is_beginning = len(prefix) < len(sample.token_ids) and tuple(sample.token_ids[: len(prefix)]) == prefix
        return bool(is_beginning and sample.parameters["cache_salt"] == salt)

    def step(self) -> None:
        """Runs the next tokens of all running answers in one pass; those with nothing left to run get a new one."""
        running = list(self.running)
        if not running:
            return
        rows = self.forward(running, [self.next_tokens(sample) for sample in running])
        self.witnesses["max_batch"] = max(self.witnesses["max_batch"], len(running))
        for sample, logits in zip(running, rows, strict=True):
            if sample.cache.num_computed_tokens < len(sample.token_ids):
                self.witnesses["chunks"] += 1
                self.keep_prefix(sample)
            else:
                self.emit(sample, logits)
        for sample in running:
            reason = self.end_of(sample)
            if reason is not None:
                self.end([sample], reason)

    def next_tokens(self, sample: Sample) -> list[int]:
        """Gives the tokens that run next; the last one by itself where prefixes are kept, to have one for next time."""
        left = sample.token_ids[sample.cache.num_computed_tokens :]
        if self.knobs["prefix_cache"] and len(left) > 1:
            left.pop()
        return left[: self.knobs["max_chunk"]]

    def forward(self, samples: Sequence[Sample], token_ids: Sequence[Sequence[int]]) -> np.ndarray:
        """Runs tokens over the answers' caches; gives the logits of the last one of each answer."""
        return np.asarray(self.model.prefill(token_ids, [sample.cache for sample in samples]))

    def keep_prefix(self, sample: Sample) -> None:
        """Keeps what has run of an answer for others; the oldest is forgotten where there are too many."""
        if self.knobs["prefix_cache"]:
            prefix = tuple(sample.token_ids[: sample.cache.num_computed_tokens])
            self.prefixes[sample.parameters["cache_salt"], prefix] = copy.deepcopy(sample.cache)
            if len(self.prefixes) > MAX_KEPT_PREFIXES:
                del self.prefixes[next(iter(self.prefixes))]

    def emit(self, sample: Sample, logits: np.ndarray) -> None:
        """Gives an answer its next token."""
        sample.token_ids.append(self.choose(sample, logits))
        sample.logits.append(logits)

    def choose(self, sample: Sample, logits: np.ndarray) -> int:
        """Gives the token that follows an answer's tokens."""
        return choose(sample, logits, self.eos_token_ids)

    def end_of(self, sample: Sample) -> str | None:
        """Tells why an answer ends with its newest token; None while it goes on."""
        return end_of(sample, self.eos_token_ids) if sample.output_token_ids else None

    def show(self, sample: Sample) -> EngineSample:
        """Gives what has come of an answer."""
        return show(sample)
