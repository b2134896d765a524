"""What an engine tells of its requests, after each step and of an abort, held to what they have."""

from collections.abc import Sequence
from typing import Any

from oracle.errors import OutcomeMismatch
from refinfer.engine.answer import Answer, StepRow
from refinfer.engine.core import EngineCore
from refinfer.engine.engine import LLMEngine
from refinfer.engine.output import RequestOutput
from refinfer.scheduler import Request, RequestState


class _HeardCore:
    """Passes on what an engine asks of its core, and keeps what the engine does not tell."""

    def __init__(self, core: EngineCore) -> None:
        self._core = core
        self.added: list[tuple[RequestState, Answer]] = []
        self.rows: list[StepRow] = []

    def add(self, state: RequestState) -> Answer:
        answer = self._core.add(state)
        self.added.append((state, answer))
        return answer

    def abort(self, state: RequestState) -> None:
        self._core.abort(state)

    def recover(self) -> None:
        self._core.recover()

    def step(self) -> list[StepRow]:
        self.rows = self._core.step()
        return self.rows


class _Engine(LLMEngine):
    """The shipped engine without a checkpoint, which it needs for making requests of prompts only."""

    def __init__(self, core: Any) -> None:
        self.core = core
        self._samples_by_id = {}
        self._arriving, self._told_ids, self._has_untold = None, (), False


class ToldRequests:
    """Serves requests through the engine that callers have, and listens.

    Args:
        core: What runs the steps, without a request.
    """

    def __init__(self, core: EngineCore) -> None:
        self._heard = _HeardCore(core)
        self._engine = _Engine(self._heard)
        self._states_by_id: dict[str, tuple[RequestState, ...]] = {}
        self._last_by_id: dict[str, RequestOutput] = {}

    def add(self, request: Request) -> tuple[tuple[RequestState, ...], tuple[Answer, ...]]:
        """Queues a request; gives where its samples stand, and what each of them will have given."""
        self._heard.added = []
        self._engine.add(request)
        states = self._states_by_id[request.request_id] = tuple(state for state, _ in self._heard.added)
        return states, tuple(answer for _, answer in self._heard.added)

    def step(self) -> list[StepRow]:
        """Runs one step; gives what the core says of it.

        Raises:
            OutcomeMismatch: The engine tells of a request that got no token, of one twice or not at all, or something
                else than what a request has.
        """
        outputs = self._engine.step()
        due = list(dict.fromkeys(row.state.request.request_id for row in self._heard.rows if row.token_ids))
        told = [output.request_id for output in outputs]
        if told != due:
            message = f"a step gave a token to requests {due}, and the engine told of {told}"
            raise OutcomeMismatch(message, told=told, due=due)
        for output in outputs:
            self._hear(output)
        return self._heard.rows

    def abort(self, request_id: str) -> None:
        """Aborts a request that has not ended, with all its samples.

        Raises:
            OutcomeMismatch: A sample goes on, or the engine tells something else than what the request has.
        """
        output = self._engine.abort_request(request_id)
        self._hear(output)
        running = [state.sample_index for state in self._states_by_id[request_id] if not state.is_finished]
        if running or self._engine.is_unfinished(request_id):
            message = f"request {request_id} was aborted, and its samples {running} go on"
            raise OutcomeMismatch(message, request_id=request_id, running=running)

    def _hear(self, output: RequestOutput) -> None:
        request_id = output.request_id
        states, last = self._states_by_id[request_id], self._last_by_id.get(request_id)
        self._last_by_id[request_id] = output
        is_wrong_by_finding = {
            "again, after it had ended": last is not None and last.finished,
            "with other tokens than it has": [own.token_ids for own in output.outputs]
            != [state.output_token_ids for state in states],
            "with other ends than it has": [own.finish_reason for own in output.outputs]
            != [state.finish_reason for state in states],
            "as ended, or not, where it is the other": output.finished != all(state.is_finished for state in states),
            "with text that goes on from another": last is not None
            and not _all_go_on([own.text for own in last.outputs], [own.text for own in output.outputs]),
            "with another number of cached tokens than before": last is not None
            and last.num_cached_tokens != output.num_cached_tokens,
        }
        for finding, is_wrong in is_wrong_by_finding.items():
            if is_wrong:
                message = f"the engine told of request {request_id} {finding}: {output}, before it {last}"
                raise OutcomeMismatch(message, request_id=request_id)


def _all_go_on(shown: Sequence[str | None], texts: Sequence[str | None]) -> bool:
    return all((text or "").startswith(before or "") for before, text in zip(shown, texts, strict=True))
