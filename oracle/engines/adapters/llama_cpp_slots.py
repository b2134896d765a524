"""Which tokens does a step of llama.cpp run? Requests wait, take sequences, go on together and let them go."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from oracle.engines.messages import EngineRequest

Row = np.ndarray[Any, np.dtype[np.float32]]


@dataclass(frozen=True)
class Token:
    """One token of a batch: which, where, of which sequence, and whether its logits are wanted."""

    token_id: int
    position: int
    sequence: int
    wants_logits: bool


@runtime_checkable
class Context(Protocol):
    """What a scheduler needs of a context."""

    def decode(self, tokens: Sequence[Token]) -> None:
        """Runs tokens."""
        ...

    def logits(self, place: int) -> Row:
        """Gives the logits after the token at a place of the last batch."""
        ...

    def forget(self, sequence: int, first: int = 0) -> None:
        """Takes a sequence away, from a position on."""
        ...

    def share(self, source: int, target: int) -> None:
        """Gives a sequence the keys and values of another."""
        ...


@runtime_checkable
class Sampler(Protocol):
    """What chooses the tokens of one answer."""

    def sample(self, place: int) -> int:
        """Chooses one by the logits at a place of the last batch."""
        ...

    def close(self) -> None:
        """Lets go of it."""
        ...


MakeSampler = Callable[[EngineRequest, int], Sampler]
"""Makes what chooses the tokens of an answer, from a request and the number of the answer."""


@dataclass
class Answer:
    """One answer to a request, and where it stands.

    Attributes:
        request: The request.
        sampler: What chooses its tokens.
        sequence: Which sequence of the context is its own.
        num_computed: How many of its tokens have keys and values there.
        others: Further answers to the same request, which begin where the prompt ends.
        output: Its tokens so far.
        rows: The logits that they were chosen by.
        prompt_rows: Logits after each prompt token, where they are asked for.
        ending: Why it has ended.
    """

    request: EngineRequest
    sampler: Sampler
    sequence: int
    num_computed: int = 0
    others: list["Answer"] = field(default_factory=list)
    output: list[int] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    prompt_rows: list[Row] = field(default_factory=list)
    ending: str | None = None

    @property
    def tokens(self) -> tuple[int, ...]:
        """Prompt and output."""
        return (*self.request.prompt_token_ids, *self.output)

    def take(self, token_id: int, row: Row, stop_token_ids: frozenset[int]) -> None:
        """Adds a token, and sees whether it is the last."""
        self.output.append(token_id)
        self.rows.append(row)
        if token_id in stop_token_ids:
            self.ending = "stop"
        elif len(self.output) >= self.request.max_tokens:
            self.ending = "length"
        elif self.request.abort_after is not None and len(self.output) >= self.request.abort_after:
            self.ending = "abort"


class Slots:
    """The sequences of one context, and the requests that have them.

    Args:
        context: What runs tokens.
        num_sequences: How many it holds.
        num_batch: Most tokens of one step.
        keeps_prompts: Whether a sequence stays when its request ends, for one that begins alike.
    """

    def __init__(self, context: Context, num_sequences: int, num_batch: int, *, keeps_prompts: bool) -> None:
        self._context = context
        self._num_batch = num_batch
        self._keeps_prompts = keeps_prompts
        self._free = list(range(num_sequences))
        self._kept: dict[int, tuple[int, ...]] = {}
        self.running: list[Answer] = []
        self.witnesses = {"steps": 0, "max_batch": 0, "cached_tokens": 0, "chunked_prompts": 0, "forks": 0}

    def admit(self, request: EngineRequest, make_sampler: MakeSampler) -> list[Answer] | None:
        """Begins a request where there are sequences for its answers; gives them, or nothing where it has to wait."""
        number = int(request.parameters.get("n", 1))
        if number > len(self._free):
            return None
        samplers = [make_sampler(request, place) for place in range(number)]
        # Scores of a prompt are wanted of all of it, so none of it can be left out.
        needs_all = request.parameters.get("prompt_logprobs") is not None
        sequence, num_cached = self._best_sequence(() if needs_all else request.prompt_token_ids)
        answers = [Answer(request, samplers[0], sequence, num_cached)]
        self._free.remove(sequence)
        for sampler in samplers[1:]:
            answers.append(Answer(request, sampler, self._free.pop(0)))
            self._drop(answers[-1].sequence)
        answers[0].others = answers[1:]
        self.witnesses["cached_tokens"] += num_cached
        self.running.append(answers[0])
        return answers

    def step(self, stop_token_ids_of: Callable[[EngineRequest], frozenset[int]]) -> None:
        """Runs one batch, and takes what comes of it."""
        batch: list[Token] = []
        ends: list[tuple[Answer, int, range]] = []
        for answer in self.running:
            places = self._schedule(answer, batch)
            ends.append((answer, len(batch) - 1, places))
        self._context.decode(batch)
        self.witnesses["steps"] += 1
        self.witnesses["max_batch"] = max(self.witnesses["max_batch"], sum(bool(places) for _, _, places in ends))
        for answer, last, places in ends:
            if places:
                self._advance(answer, last, places, stop_token_ids_of(answer.request))
        for answer in [answer for answer in self.running if answer.ending is not None]:
            self._release(answer)

    def reset(self) -> None:
        """Takes every request away, after a step that failed."""
        for answer in [answer for begun in self.running for answer in (begun, *begun.others)]:
            answer.sampler.close()
            self._free.append(answer.sequence)
        self.running.clear()
        for sequence in self._free:
            self._drop(sequence)

    def _schedule(self, answer: Answer, batch: list[Token]) -> range:
        """Puts into a batch what fits of an answer's tokens; gives the places in the answer that it will run."""
        tokens = answer.tokens
        num_scheduled = min(len(tokens) - answer.num_computed, self._num_batch - len(batch))
        places = range(answer.num_computed, answer.num_computed + num_scheduled)
        wants_all = answer.request.parameters.get("prompt_logprobs") is not None
        batch += [
            Token(tokens[place], place, answer.sequence, wants_all or place + 1 == len(tokens)) for place in places
        ]
        if 0 < num_scheduled < len(tokens) - answer.num_computed and not answer.output:
            self.witnesses["chunked_prompts"] += 1
        return places

    def _advance(self, answer: Answer, last: int, places: range, stop_token_ids: frozenset[int]) -> None:
        """Takes what a step computed of an answer, and its next token where all of it is computed."""
        if answer.request.parameters.get("prompt_logprobs") is not None and not answer.output:
            first = last - len(places) + 1
            answer.prompt_rows += [self._context.logits(first + place) for place in range(len(places))]
        answer.num_computed = places.stop
        if answer.num_computed < len(answer.tokens):
            return
        row = self._context.logits(last)
        beginning = [answer, *answer.others]
        for other in answer.others:
            self._context.share(answer.sequence, other.sequence)
            other.num_computed = answer.num_computed
            self.witnesses["forks"] += 1
            self.running.append(other)
        answer.others = []
        for begun in beginning:
            begun.take(begun.sampler.sample(last), row, stop_token_ids)

    def _release(self, answer: Answer) -> None:
        self.running.remove(answer)
        answer.sampler.close()
        self._free.append(answer.sequence)
        if self._keeps_prompts:
            self._kept[answer.sequence] = answer.tokens[: answer.num_computed]
        else:
            self._drop(answer.sequence)

    def _best_sequence(self, prompt: tuple[int, ...]) -> tuple[int, int]:
        """Gives a free sequence, with the number of its tokens that a prompt begins with; the rest is forgotten.

        A prompt's last token runs in any case, since its logits are wanted.
        """
        shared = {sequence: _num_shared(self._kept.get(sequence, ()), prompt[:-1]) for sequence in self._free}
        sequence = max(self._free, key=lambda free: shared[free])
        self._kept.pop(sequence, None)
        self._context.forget(sequence, shared[sequence])
        return sequence, shared[sequence]

    def _drop(self, sequence: int) -> None:
        self._kept.pop(sequence, None)
        self._context.forget(sequence)


def _num_shared(one: Sequence[int], other: Sequence[int]) -> int:
    for number, (token_id, other_id) in enumerate(zip(one, other, strict=False)):
        if token_id != other_id:
            return number
    return min(len(one), len(other))
