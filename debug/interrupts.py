"""Stops calls of an engine at drawn instructions, as Ctrl-C does, and holds what follows to an engine nobody stopped.

Reach for it when you have changed what a call of the engine changes, or in which order.

    python debug/interrupts.py
    python debug/interrupts.py --ways paged,paged-swap --places 400 --seed 7

For each way of running, calls (a request is added, a step runs, a request is aborted, `generate`, `stream`) are stopped
at any instruction of `refinfer` outside the network, by KeyboardInterrupt or by another error that can come anywhere;
some of the calls that follow, and clean-ups, are stopped as well. Afterwards every request that is left must end with
the tokens, text and log-probabilities of an engine that nobody stopped, and nothing may be left of any.
"""

import argparse
import random
import sys
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from itertools import count, islice
from typing import Any
from unittest import mock

from rich.console import Console
from rich.progress import Progress

from oracle.checkpoints import CheckpointSpec, cached_checkpoint
from oracle.commands.shared import positive
from oracle.drive import check_all_given_back
from oracle.errors import InvariantViolation, OutcomeMismatch
from oracle.invariants import check_core, check_drained
from oracle.stopper import Stopper
from refinfer import LLM, LLMEngine, RequestOutput, SamplingParams
from refinfer.config.engine_config import engine_config
from refinfer.engine.loading import LoadedModel

CALLS = ("add", "step", "abort", "generate", "stream")
ERRORS = (KeyboardInterrupt, MemoryError, TimeoutError)
"""What stops a call: Ctrl-C, and what else comes anywhere, from the interpreter or from the handler of a signal."""

SPEC = CheckpointSpec(
    hidden_size=16, head_dim=8, vocab_size=320, max_position_embeddings=64, eos_token_ids=(1, 6), with_tokenizer=True
)
_TIGHT = {"block_size": 4, "num_blocks": 8, "max_model_len": 32, "max_num_batched_tokens": 12}
WAYS: dict[str, dict[str, Any]] = {
    "none": {"cache": "none"},
    "static": {"cache": "static", "max_num_seqs": 3},
    "continuous": {"cache": "continuous", "max_num_seqs": 3, "max_num_batched_tokens": 9},
    "paged": {"block_size": 4, "num_blocks": 20, "max_num_batched_tokens": 12},
    "paged-gather": {"block_size": 4, "num_blocks": 20, "paged_attention": "gather", "placement_seed": 1},
    "paged-swap": {**_TIGHT, "preemption": "swap"},
    "paged-recompute": _TIGHT,
    "paged-ngram": {"block_size": 4, "num_blocks": 20, "speculative": "ngram"},
    "paged-draft": {"block_size": 4, "num_blocks": 20, "speculative": str(cached_checkpoint(SPEC))},
}
PROMPTS = [[5, 9, 2, 7, 5, 9, 2], [5, 9, 2, 7, 5, 9, 2, 7, 5], [8], [5, 9, 2, 7, 5, 9, 2, 3]]
PARAMS = [
    SamplingParams(n=2, max_tokens=6, ignore_eos=True, temperature=1.0, seed=3, logprobs=1),
    SamplingParams(max_tokens=8, ignore_eos=True, prompt_logprobs=1, repetition_penalty=1.3, logprobs=0),
    SamplingParams(max_tokens=9, ignore_eos=True, stop=["zz", "e"], min_tokens=4),
    SamplingParams(max_tokens=5),
]
"""Requests that have something of all that can be kept: samples, scores, penalties, stop strings, a shared prefix."""

_MAX_STEPS = 200


class Trials:
    """Stopped calls of one way of running, drawn from a seed."""

    def __init__(self, way: str, seed: int) -> None:
        self._chance = random.Random(f"{way} {seed}")
        self._options = WAYS[way]
        self._loaded = LoadedModel.load(cached_checkpoint(SPEC), dtype="float64")
        self._num_places: dict[tuple[str, int, int], int] = {}
        self._expected = self._llm().generate(PROMPTS, PARAMS)

    def run(self, call: str) -> str:
        """Stop a call of this kind once; return where.

        Raises:
            OutcomeMismatch: A request that is left gives something else, or does not end.
            InvariantViolation: Something that is kept does not add up, or is left behind.
        """
        num_steps, whom = self._chance.randrange(8), self._chance.randrange(4)
        play = self._play_llm if call in ("generate", "stream") else self._play_engine
        key = (call, num_steps, whom)
        if key not in self._num_places:
            counter = Stopper()
            play(*key, counter, Stopper())
            self._num_places[key] = counter.num_seen
        if not self._num_places[key]:  # as where a request is to be aborted that has ended
            return self.run(call)
        error = self._chance.choice(ERRORS)
        stopper = Stopper(self._chance.randrange(self._num_places[key]), error)
        second = Stopper(int(self._chance.expovariate(1 / 1500)), error)  # beyond the call where nothing is to stop it
        try:
            play(*key, stopper, second)
        except Exception as problem:
            problem.add_note(f"{key} stopped at {stopper.where or 'no place'}, and then at {second.where or 'none'}")
            raise
        return stopper.where

    def _play_engine(self, call: str, num_steps: int, whom: int, first: Stopper, second: Stopper) -> None:
        engine = LLMEngine(self._loaded, engine_config(dtype="float64", **self._options))
        last: dict[str, RequestOutput] = {}
        for place in range(3):
            engine.add_request(str(place), PROMPTS[place], PARAMS[place])
        for _ in range(num_steps):
            _hear(engine.step(), last)
        name = str(whom % 3)
        action: dict[str, Callable[[], object]] = {
            "add": lambda: engine.add_request("3", PROMPTS[3], PARAMS[3]),
            "step": lambda: _hear(engine.step(), last),
            "abort": lambda: _hear([engine.abort_request(name)], last) if engine.is_unfinished(name) else None,
        }
        with suppress(*ERRORS), first.watching():
            action[call]()
        with suppress(*ERRORS), second.watching():
            _hear(engine.step(), last)
        if call == "abort":
            action["abort"]()
        if "3" not in last and not engine.is_unfinished("3"):
            action["add"]()
        for _ in range(_MAX_STEPS):
            check_core(engine.core)
            if not engine.has_unfinished_requests():
                break
            _hear(engine.step(), last)
        for place, expected in enumerate(self._expected):
            _compare(last.get(str(place)), expected, is_aborted=call == "abort" and str(place) == name)
        _check_empty(engine)

    def _play_llm(self, call: str, num_outputs: int, whom: int, first: Stopper, second: Stopper) -> None:
        llm, drop = self._llm(), LLM._drop  # noqa: SLF001 - a second Ctrl-C comes in the clean-up
        closes = call == "stream" and num_outputs % 2 == 1

        def drop_and_stop(own: LLM, ids: Sequence[str]) -> None:
            with (first if closes else second).watching():
                drop(own, ids)

        other = llm.stream(PROMPTS[whom:], PARAMS[whom:])
        step, steps = llm.engine.step, count()

        def step_a_while() -> list[RequestOutput]:
            if next(steps) == _MAX_STEPS:
                message = f"the requests have not ended after {_MAX_STEPS} steps"
                raise OutcomeMismatch(message)
            return step()

        llm.engine.step = step_a_while  # type: ignore[method-assign]
        heard = list(islice(other, whom))
        stream = llm.stream(PROMPTS, PARAMS)
        list(islice(stream, num_outputs if call == "stream" else 0))
        with (
            mock.patch.object(LLM, "_drop", drop_and_stop),
            mock.patch.object(sys, "unraisablehook"),  # one that comes while a generator is freed
            suppress(*ERRORS),
            first.watching(),
        ):
            if call == "generate":
                llm.generate(PROMPTS, PARAMS)
            elif closes and isinstance(stream, Generator):
                stream.close()
            else:
                next(stream, None)
        del stream
        heard.extend(other)
        final = sorted((output for output in heard if output.finished), key=lambda output: int(output.request_id))
        for found, expected in zip(final, self._expected[whom:], strict=True):
            _compare(found, expected)
        for found, expected in zip(llm.generate(PROMPTS, PARAMS), self._expected, strict=True):
            _compare(found, expected)
        _check_empty(llm.engine)

    def _llm(self) -> LLM:
        return LLM(self._loaded, dtype="float64", **self._options)


def _hear(outputs: Sequence[RequestOutput], last: dict[str, RequestOutput]) -> None:
    for output in outputs:
        if output.request_id in last and last[output.request_id].finished:
            message = f"request {output.request_id} is told of again, after it had ended"
            raise OutcomeMismatch(message, request_id=output.request_id)
        last[output.request_id] = output


def _compare(found: RequestOutput | None, expected: RequestOutput, *, is_aborted: bool = False) -> None:
    """Hold a request to what it gives where nobody is stopped; one that was aborted, to the beginning of it."""
    if found is None or not found.finished:
        message = f"the request that should give {expected} has not ended, and has {found}"
        raise OutcomeMismatch(message)
    pairs = list(zip(found.outputs, expected.outputs, strict=True))
    is_right = all(
        is_aborted
        and own.finish_reason == "abort"
        and own.token_ids == whole.token_ids[: len(own.token_ids)]
        and (own.logprobs or []) == (whole.logprobs or [])[: len(own.logprobs or [])]
        for own, whole in pairs
        if own != whole
    )
    if not is_right or not (is_aborted or found.prompt_logprobs == expected.prompt_logprobs):
        message = f"a request gives {found}, and where nobody is stopped {expected}"
        raise OutcomeMismatch(message)


def _check_empty(engine: LLMEngine) -> None:
    """Check that an engine whose requests have all ended holds nothing of any."""
    stats, latencies = engine.stats(), engine.core._latencies  # noqa: SLF001 - nobody but a check wants to know
    check_drained(engine.core)
    check_all_given_back(engine.core)
    held = [stats.num_running, stats.num_waiting, stats.num_used_blocks]
    held += map(len, (latencies._last_by_state, latencies._first_is_due, engine._samples_by_id))  # noqa: SLF001
    if any(held):
        message = f"all requests have ended, and something is left: {held}"
        raise InvariantViolation(message)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the script and gives its exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ways", default=",".join(WAYS), help="which, with commas between (default: %(default)s)")
    parser.add_argument("--places", type=positive, default=400, help="how many in each (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="where chance comes from (default: %(default)s)")
    options = parser.parse_args(arguments)
    ways, num_wrong = options.ways.split(","), 0
    if unknown := set(ways) - set(WAYS):
        parser.error(f"ways {sorted(unknown)} are unknown; there are {', '.join(WAYS)}")
    console = Console(highlight=False, soft_wrap=True)
    with Progress(console=console, transient=True) as progress:
        for way in ways:
            trials, stopped, wrong = Trials(way, options.seed), Counter[str](), Counter[str]()
            for number in progress.track(range(options.places), description=way):
                call = CALLS[number % len(CALLS)]
                try:
                    stopped[call] += bool(trials.run(call))
                except Exception as error:  # noqa: BLE001 - whatever comes of it is what is looked for
                    wrong[call] += 1
                    console.print(
                        f"{way}: {type(error).__name__}: {error}", *getattr(error, "__notes__", ()), markup=False
                    )
            figures = ", ".join(f"{call} {stopped[call] + wrong[call]}" for call in CALLS)
            console.print(f"{way}: {figures} stopped; {wrong.total()} wrong", markup=False)
            num_wrong += wrong.total()
    console.print(f"{len(ways) * options.places} places, {num_wrong} wrong")
    return int(num_wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
