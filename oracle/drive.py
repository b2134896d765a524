"""Drives an engine's core through a schedule: arrivals, aborts, whatever its scheduler does; keeps what came out."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from oracle.errors import InvariantViolation, NeverEnds, OutcomeMismatch, TextMismatch
from oracle.lone_answer import SampleRun
from oracle.scenario import Scenario
from oracle.scripted_scheduler import ScriptedScheduler
from oracle.told import ToldRequests
from refinfer.engine.answer import Answer, StepRow
from refinfer.engine.core import EngineCore
from refinfer.scheduler import Request, RequestState

MAX_STEPS_PER_TOKEN = 50
"""Steps for each token of a scenario, after which it is said never to end: each step moves the oldest request."""

MIN_MAX_STEPS = 1000


@dataclass
class DrivenRequest:
    """One request of a schedule, with all its samples.

    Attributes:
        request: What was asked.
        states: Where its samples stand.
        answers: What they have given.
        rows: For each sample the logits that its tokens were picked from.
        texts: What each sample had shown after the last step.
        is_split: Whether a sample ran a part of its tokens only, in some step.
        was_aborted: Whether it was aborted before it had ended.
    """

    request: Request
    states: tuple[RequestState, ...] = ()
    answers: tuple[Answer, ...] = ()
    rows: list[list[np.ndarray]] = field(default_factory=list)
    texts: list[str | None] = field(default_factory=list)
    is_split: bool = False
    was_aborted: bool = False

    def samples(self) -> list[SampleRun]:
        """Gives what every sample has given."""
        return [
            SampleRun(answer.output(), answer.prompt_logprobs if index == 0 else None, tuple(self.rows[index]))
            for index, answer in enumerate(self.answers)
        ]


class Drive:
    """One run of a scenario's requests through a core.

    Args:
        core: The engine, with no requests.
        scenario: When its requests arrive and are aborted.
        requests: The same requests as the engine takes them, in order.

    Attributes:
        core: The engine.
        driven: The requests, in order.
        num_steps: Steps so far, those in which nothing could run included.
    """

    def __init__(self, core: EngineCore, scenario: Scenario, requests: Sequence[Request]) -> None:
        self.core = core
        self.driven = [DrivenRequest(request) for request in requests]
        self.num_steps = 0
        self._told = ToldRequests(core)
        self._scenario = scenario
        self._place_by_state: dict[RequestState, tuple[DrivenRequest, int]] = {}
        self._arrivals = sorted(
            ((spec.arrival, place) for place, spec in enumerate(scenario.requests)), key=lambda arrival: arrival[0]
        )
        self._aborts = {
            place: spec.abort_step for place, spec in enumerate(scenario.requests) if spec.abort_step is not None
        }

    def run(self) -> None:
        """Runs every request to its end.

        Raises:
            NeverEnds: Requests go on without an end.
            OutcomeMismatch: The engine tells something else than what its requests have.
            TextMismatch: Text that was shown is taken back.
            InvariantViolation: Something is still held when all have ended.
        """
        num_tokens = sum(
            (len(spec.prompt_token_ids) + spec.max_tokens) * spec.sampling.n for spec in self._scenario.requests
        )
        while self._arrivals or self.core.has_unfinished_requests():
            self._arrive()
            self._abort()
            for row in self._told.step():
                self._see(row)
            self.num_steps += 1
            check_ends(self.num_steps, num_tokens)
        self.core.runner.prepare(self.core.scheduler.take_operations())
        check_all_given_back(self.core)

    def _arrive(self) -> None:
        while self._arrivals and self._arrivals[0][0] <= self.num_steps:
            driven = self.driven[self._arrivals.pop(0)[1]]
            driven.states, driven.answers = self._told.add(driven.request)
            driven.rows = [[] for _ in driven.states]
            driven.texts = [None] * len(driven.states)
            self._place_by_state.update((state, (driven, index)) for index, state in enumerate(driven.states))

    def _abort(self) -> None:
        for place, step in list(self._aborts.items()):
            driven = self.driven[place]
            if step > self.num_steps or not driven.states:
                continue
            del self._aborts[place]
            if not all(state.is_finished for state in driven.states):
                self._told.abort(driven.request.request_id)
                driven.was_aborted = True

    def _see(self, row: StepRow) -> None:
        driven, index = self._place_by_state[row.state]
        if not row.token_ids:
            driven.is_split = True
            return
        driven.rows[index].extend(row.logits[len(row.logits) - len(row.token_ids) :])
        text = driven.answers[index].text
        shown = driven.texts[index]
        if text is not None and shown is not None and not text.startswith(shown):
            message = f"request {driven.request.request_id}, sample {index}: {shown!r} was shown, and became {text!r}"
            raise TextMismatch(message, shown=shown, text=text)
        driven.texts[index] = text


def check_ends(num_steps: int, num_tokens: int) -> None:
    """Checks that requests may still end by themselves.

    Args:
        num_steps: Steps that were taken.
        num_tokens: Tokens of all prompts and outputs together, as many as may come.

    Raises:
        NeverEnds: They should have ended long ago.
    """
    limit = max(MIN_MAX_STEPS, MAX_STEPS_PER_TOKEN * num_tokens)
    if num_steps > limit:
        message = f"requests have not ended after {limit} steps, with {num_tokens} tokens to run"
        raise NeverEnds(message, num_steps=limit)


def check_guesses(drive: Drive, *, are_all_right: bool = False) -> None:
    """Checks, once all requests have ended, that no guess was rejected that should have stayed.

    A guess that is the very token that came out stays, unless the request ends with it.

    Args:
        drive: The run.
        are_all_right: Whether the guesses are those of the very same model, so that none is wrong.

    Raises:
        OutcomeMismatch: One was.
    """
    scheduler = drive.core.scheduler
    for own in scheduler.verified if isinstance(scheduler, ScriptedScheduler) else ():
        is_end = own.state.is_finished and own.state.num_tokens == own.num_tokens
        if own.num_rejected and (not is_end if own.ends_inside else are_all_right):
            message = (
                f"request {own.state.request.request_id}, sample {own.state.sample_index}: the last {own.num_rejected} "
                f"of {own.num_drafted} guessed tokens were rejected by token {own.num_tokens}, and the first was right"
            )
            raise OutcomeMismatch(message, num_rejected=own.num_rejected)


def check_all_given_back(core: EngineCore) -> None:
    """Checks that an engine whose requests have all ended holds nothing for any of them.

    Raises:
        InvariantViolation: It does.
        BlockAccountingError: Its blocks do not add up.
    """
    scheduler, space = core.scheduler, core.scheduler.blocks
    leftovers = {
        "requests that wait": len(scheduler.waiting),
        "requests that run": sum(not state.is_finished for state in scheduler.running),
        "answers": len(core.answers),
        "requests in host memory": getattr(core.runner, "num_swapped_requests", 0),
        **_left_of_guesses(core),
    }
    if space is not None:
        space.pool.check_integrity()
        if space.prefix is not None:
            space.prefix.check_integrity()
        leftovers["blocks"] = space.pool.num_blocks - space.num_available_blocks
        leftovers["pinned blocks without a prefix map"] = space.pool.num_pinned_blocks * (space.prefix is None)
        leftovers["blocks in host memory"] = space.num_swapped_blocks
    for name, number in leftovers.items():
        if number:
            message = f"all requests have ended, and {number} {name} are left"
            raise InvariantViolation(message, name=name, number=number)


def _left_of_guesses(core: EngineCore) -> dict[str, int]:
    """Counts what an engine and whatever guesses for it keep of samples."""
    speculation = core._speculation  # noqa: SLF001 - nobody but a check wants to know
    if speculation is None:
        return {}
    proposer = speculation._proposer  # noqa: SLF001
    return {
        "drafts": len(speculation._draft_by_state),  # noqa: SLF001
        "samples that were guessed for": getattr(proposer, "num_held_samples", 0),
    }
