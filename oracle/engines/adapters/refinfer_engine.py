"""The modes of `refinfer` as engines: each is spoken to like anybody else's, through `LLMEngine`."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from oracle.engines.adapter import Refused
from oracle.engines.adapters.refinfer_settings import (
    COUNTED,
    MAX_MODEL_LEN,
    OPTIONS_BY_MODE,
    PARAMETER_ORDER,
    SAME_PARAMETERS,
    SELF,
    WITNESSES,
    knobs_of,
    sampling_params,
    to_output,
)
from oracle.engines.declaration import EngineDeclaration
from oracle.engines.messages import EngineOutput, EngineRequest, EngineRun
from refinfer import LLMEngine, RequestOutput
from refinfer.config.engine_config import engine_config
from refinfer.engine.answer import StepRow
from refinfer.errors import ConfigError, RefinferError, RequestError


class RefinferAdapter:
    """One mode of `refinfer`.

    Args:
        mode: One of `OPTIONS_BY_MODE`.
    """

    def __init__(self, mode: str) -> None:
        self._mode = mode
        self._engine: LLMEngine | None = None

    def declare(self) -> EngineDeclaration:
        """Claims bits, as `refinfer` does, and all that its settings and parameters hold."""
        knobs, excluded_knobs = knobs_of(self._mode)
        of_blocks = OPTIONS_BY_MODE[self._mode]["cache"] == "paged"
        capabilities = ["logprobs", "top_logprobs", "logits", "prompt_logprobs", "seeded_sampling"]
        capabilities += ["batching", "arrivals", "aborts", "steps", *["pool"] * of_blocks]
        return EngineDeclaration(
            name=f"refinfer-{self._mode}",
            version=_version(),
            contract="bitwise",
            capabilities=tuple(capabilities),
            parameters=(*SAME_PARAMETERS, "logit_bias", "logits", *["cache_salt"] * of_blocks),
            parameter_order=PARAMETER_ORDER,
            knobs=knobs,
            excluded_knobs=excluded_knobs,
            max_model_len=MAX_MODEL_LEN,
            witnesses=WITNESSES,
        )

    def open(self, folder: str, knobs: dict[str, Any]) -> None:
        """Builds an engine; see `EngineAdapter.open`."""
        options = {**knobs, **OPTIONS_BY_MODE[self._mode], "max_model_len": MAX_MODEL_LEN}
        if options.get("speculative") == SELF:
            options["speculative"] = folder
        self.close()
        try:
            self._engine = LLMEngine(folder, engine_config(**options))
        except RefinferError as error:
            raise Refused(str(error)) from error

    def run(self, requests: Sequence[EngineRequest]) -> EngineRun:
        """See `EngineAdapter.run`; every step of the run is a step of the engine.

        Raises:
            ConfigError: Nothing is open.
        """
        if self._engine is None:
            message = "no checkpoint is open"
            raise ConfigError(message)
        return _Run(self._engine, requests, takes_salt="cache_salt" in self.declare().parameters).finish()

    def close(self) -> None:
        """Drops the engine."""
        self._engine = None


class _Run:
    """One run of requests over an engine that has none.

    Args:
        engine: The engine.
        requests: In order.
        takes_salt: Whether a salt means something to it.
    """

    def __init__(self, engine: LLMEngine, requests: Sequence[EngineRequest], *, takes_salt: bool) -> None:
        self._engine = engine
        self._requests = requests
        self._takes_salt = takes_salt
        self._waiting = sorted(range(len(requests)), key=lambda place: requests[place].arrival)
        self._place_by_id: dict[str, int] = {}
        self._output_by_place: dict[int, RequestOutput] = {}
        self._refusal_by_place: dict[int, str] = {}
        self._rows_by_sample: dict[tuple[int, int], list[tuple[float, ...]]] = {}
        self._witnesses = dict.fromkeys(WITNESSES, 0)

    def finish(self) -> EngineRun:
        """Runs all to their ends; where that fails, the engine is left without requests as well."""
        before = self._engine.stats()
        with self._seen_steps():
            try:
                while self._waiting or self._engine.has_unfinished_requests():
                    self._arrive()
                    self._abort()
                    self._step()
            finally:
                for request_id in filter(self._engine.is_unfinished, self._place_by_id):
                    self._engine.abort_request(request_id)
        after = self._engine.stats()
        self._witnesses.update({name: getattr(after, own) - getattr(before, own) for name, own in COUNTED.items()})
        self._witnesses["held_blocks"] = after.num_used_blocks
        return EngineRun(tuple(self._output(place) for place in range(len(self._requests))), self._witnesses)

    def _arrive(self) -> None:
        while self._waiting and self._requests[self._waiting[0]].arrival <= self._witnesses["steps"]:
            place = self._waiting.pop(0)
            request = self._requests[place]
            try:
                params = sampling_params(request, takes_salt=self._takes_salt)
                salt = request.parameters.get("cache_salt")
                self._engine.add_request(request.request_id, request.prompt_token_ids, params, cache_salt=salt)
            except (Refused, ConfigError, RequestError) as error:
                self._refusal_by_place[place] = str(error)
            else:
                self._place_by_id[request.request_id] = place

    def _abort(self) -> None:
        for request_id, place in self._place_by_id.items():
            limit = self._requests[place].abort_after
            output = self._output_by_place.get(place)
            longest = 0 if output is None else max(len(own.token_ids) for own in output.outputs)
            if limit is not None and longest >= limit and self._engine.is_unfinished(request_id):
                self._output_by_place[place] = self._engine.abort_request(request_id)

    def _step(self) -> None:
        self._witnesses["steps"] += 1
        try:
            outputs = self._engine.step()
        except RequestError as error:  # its parameters leave no token to choose, which shows only now
            request_id = error.values.get("request_id")
            if not isinstance(request_id, str):
                raise
            self._engine.abort_request(request_id)
            self._refusal_by_place[self._place_by_id[request_id]] = str(error)
            return
        for output in outputs:
            self._output_by_place[self._place_by_id[output.request_id]] = output

    @contextmanager
    def _seen_steps(self) -> Iterator[None]:
        """Looks at the rows of the core's steps: of these `LLMEngine.step` gives the tokens, but not the logits."""
        core = self._engine.core
        step = core.step

        def seen_step() -> list[StepRow]:
            rows = step()
            self._see(rows)
            return rows

        core.step = seen_step  # type: ignore[method-assign]  # for the length of this run
        try:
            yield
        finally:
            del core.step

    def _see(self, rows: Sequence[StepRow]) -> None:
        self._witnesses["max_batch"] = max(self._witnesses["max_batch"], len(rows))
        for row in rows:
            self._witnesses["chunks"] += not row.token_ids
            place = self._place_by_id[row.state.request.request_id]
            if self._requests[place].parameters.get("logits"):
                own = self._rows_by_sample.setdefault((place, row.state.sample_index), [])
                own.extend(tuple(logits.tolist()) for logits in row.logits[len(row.logits) - len(row.token_ids) :])

    def _output(self, place: int) -> EngineOutput:
        request = self._requests[place]
        if place in self._refusal_by_place:
            return EngineOutput(request.request_id, refused=self._refusal_by_place[place])
        logits = None
        if request.parameters.get("logits"):
            logits = {i: self._rows_by_sample.get((place, i), []) for i in range(request.parameters.get("n", 1))}
        return to_output(self._output_by_place[place], logits)


def refinfer_none() -> RefinferAdapter:
    """Keeps no keys and values."""
    return RefinferAdapter("none")


def refinfer_static() -> RefinferAdapter:
    """Batches whose members are fixed."""
    return RefinferAdapter("static")


def refinfer_continuous() -> RefinferAdapter:
    """A growing cache for each request."""
    return RefinferAdapter("continuous")


def refinfer_paged() -> RefinferAdapter:
    """Keys and values in blocks, read where they lie."""
    return RefinferAdapter("paged")


def refinfer_paged_gather() -> RefinferAdapter:
    """Keys and values in blocks, gathered before they are read."""
    return RefinferAdapter("paged-gather")


def _version() -> str:
    try:
        return version("refinfer")
    except PackageNotFoundError:  # a checkout that is run without being installed
        return ""
