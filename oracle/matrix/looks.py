"""What does each way of looking see of one run of a schedule?"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from oracle.case import Case
from oracle.compare import compare_logits
from oracle.drive import Drive, DrivenRequest, check_guesses
from oracle.errors import LogitsMismatch, MismatchError, OutcomeMismatch
from oracle.explain.ending_signs import due_end
from oracle.lone_answer import SampleRun
from oracle.matrix.usual_rules import Answer, check_rule
from oracle.sampling_effects import other_effects, token_effects
from oracle.scenario import RequestSpec
from oracle.schedule_compare import check_stop_strings, check_whole_text, compare_fields
from refinfer.tokenizer import Tokenizer

_PROMISES = ("logprobs", "cumulative_logprob", "finish_reason", "stop_reason", "prompt_logprobs")

_PLAIN = frozenset({"n", "logprobs", "prompt_logprobs"})
"""Parameters that change neither a token nor an end."""


@dataclass(frozen=True)
class SampleInRun:
    """One sample of a run, beside what it gives alone.

    Attributes:
        spec: The request, as the scenario has it.
        driven: The request in the run.
        own: What came.
        alone: What it gives alone.
        what: How messages name it.
    """

    spec: RequestSpec
    driven: DrivenRequest
    own: SampleRun
    alone: SampleRun
    what: str

    @property
    def token_ids(self) -> tuple[int, ...]:
        """Prompt and output."""
        return self.spec.prompt_token_ids + tuple(self.own.output.token_ids)

    @property
    def output_rows(self) -> slice:
        """The positions whose logits the output tokens were picked from."""
        return slice(len(self.spec.prompt_token_ids) - 1, len(self.token_ids) - 1)


@dataclass(frozen=True)
class EndedRun:
    """A run of a schedule in which every request came to its end.

    Attributes:
        drive: The run.
        specs: Its requests.
        expected: What every sample gives alone.
        eos_token_ids: End-of-sequence ids of the model.
        tokenizer: What decodes its tokens, if anything does.
        max_model_len: Longest request in tokens, prompt and output together.
        mode: How messages name it.
        case: The case, where a real model ran, so that a reference can be asked.
    """

    drive: Drive
    specs: Sequence[RequestSpec]
    expected: Sequence[Sequence[SampleRun]]
    eos_token_ids: frozenset[int]
    tokenizer: Tokenizer | None
    max_model_len: int
    mode: str
    case: Case | None = None

    @cached_property
    def samples(self) -> list[SampleInRun]:
        """Every sample that came of every request, beside the one that was due."""
        samples = []
        for place, (spec, driven, expected) in enumerate(
            zip(self.specs, self.drive.driven, self.expected, strict=True)
        ):
            for index, (own, alone) in enumerate(zip(driven.samples(), expected, strict=False)):
                what = f"{self.mode}, request {place}, sample {index}"
                samples.append(SampleInRun(spec, driven, own, alone, what))
        return samples

    @cached_property
    def answers(self) -> list[Answer]:
        """What each sample gave beside the reference's logits on the same tokens, for the usual rules."""
        case = self.case
        if case is None:
            return []
        return [
            Answer(
                tuple(sample.own.output.token_ids),
                np.stack(sample.own.logits).astype(np.float64),
                case.reference_logits(sample.token_ids)[sample.output_rows],
                num_due=self._num_due(sample),
                what=sample.what,
            )
            for sample in self.samples
            if sample.own.logits
        ]

    def _num_due(self, sample: SampleInRun) -> int | None:
        """Gives how many tokens a request gives that asks for nothing but greedy choice; None of any other."""
        spec = sample.spec
        if not _PLAIN.issuperset(spec.sampling.named) or sample.driven.was_aborted:
            return None
        return due_end(spec, sample.own.output.token_ids, self.eos_token_ids, self.max_model_len)[0]


def _check_bits(run: EndedRun) -> None:
    """Holds rows to those of the sample alone, up to the first after which the tokens part."""
    for sample in run.samples:
        tokens = zip(sample.own.output.token_ids, sample.alone.output.token_ids, strict=False)
        rows = zip(sample.own.logits, sample.alone.logits, tokens, strict=False)
        for place, (own, alone, (own_token, token)) in enumerate(rows):
            if not np.array_equal(own, alone):
                message = f"{sample.what}: logits of output token {place} are not the same bits as alone"
                raise LogitsMismatch(message, place=place)
            if own_token != token:
                break


def _check_tokens(run: EndedRun, *, is_greedy: bool) -> None:
    for sample in run.samples:
        if (sample.spec.sampling.temperature == 0.0) == is_greedy:
            compare_fields(sample.own, sample.alone, ("token_ids",), sample.what)


def _check_promises(run: EndedRun) -> None:
    for place, (driven, expected) in enumerate(zip(run.drive.driven, run.expected, strict=True)):
        if len(driven.answers) != len(expected):
            message = (
                f"{run.mode}, request {place}: {len(driven.answers)} answers came, and {len(expected)} were asked for"
            )
            raise OutcomeMismatch(message)
    for sample in run.samples:
        compare_fields(sample.own, sample.alone, _PROMISES, sample.what)
        check_stop_strings(sample.own, sample.driven.request.params, run.tokenizer, sample.what)
        other_effects(sample.spec, sample.own)
    check_guesses(run.drive)


def _check_text(run: EndedRun) -> None:
    for sample in run.samples:
        compare_fields(sample.own, sample.alone, ("text",), sample.what)
        check_whole_text(sample.own, run.tokenizer, sample.what)


def _check_distribution(run: EndedRun) -> None:
    for sample in run.samples:
        token_effects(sample.spec, sample.driven.request, sample.own, run.eos_token_ids)


def _check_poison(run: EndedRun) -> None:
    for sample in run.samples:
        for place, row in enumerate(sample.own.logits):
            if not np.isfinite(row).all():
                message = f"{sample.what}: logits of output token {place} hold NaN: a place was read that nobody wrote"
                raise LogitsMismatch(message, place=place)


def _check_reference(run: EndedRun) -> None:
    case = run.case
    if case is None:
        return
    for sample in run.samples:
        if sample.own.logits:
            rows = np.stack(sample.own.logits).astype(np.float64)
            expected = case.reference_logits(sample.token_ids)[sample.output_rows]
            compare_logits(rows, expected, case.bound(sample.token_ids), f"{sample.what}, against the reference")


_CHECKS: dict[str, Callable[[EndedRun], None]] = {
    "reference logits": _check_reference,
    "bitwise": _check_bits,
    "greedy": lambda run: _check_tokens(run, is_greedy=True),
    "seeded": lambda run: _check_tokens(run, is_greedy=False),
    "poison": _check_poison,
    "distribution": _check_distribution,
    "contract": _check_promises,
    "text": _check_text,
}

LOOKS = tuple(_CHECKS)
"""The ways of looking that a run is held to once it has ended."""


def look_at(run: EndedRun, wanted: frozenset[str]) -> Iterator[tuple[str, str]]:
    """Gives the ways of looking, and the usual rules, that see something, each with what it says.

    Args:
        run: The run.
        wanted: Which are asked.
    """
    for name, check in _CHECKS.items():
        if name in wanted:
            try:
                check(run)
            except MismatchError as error:
                yield name, str(error)
    for answer in run.answers:
        for rule in wanted:
            said = check_rule(rule, answer)
            if said is not None:
                yield rule, said
