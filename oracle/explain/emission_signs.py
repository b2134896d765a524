"""Does each token follow from the logits that were handed out? Picked once more, in plain Python."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from oracle.drive import Drive
from oracle.explain import sources
from oracle.explain.clues import Place
from oracle.explain.recording import RowRecord, StepRecord
from oracle.explain.suspicion import Moment, Suspect, Suspicion
from oracle.lone_answer import SampleRun
from oracle.sampling_effects import drawn, plain_token
from oracle.sampling_spec import SamplingSpec
from oracle.scenario import RequestSpec, Scenario
from refinfer.engine import core
from refinfer.sampling import SampleContext
from refinfer.sampling.sampler import draw_uniform
from refinfer.scheduler import Request

_GREEDY = SamplingSpec()
_VERIFIER = Suspect("verifier", "which guessed tokens stay", sources.VERIFIER)


@dataclass(frozen=True)
class _Pick:
    """One token, and all that it follows from."""

    row: RowRecord
    spec: RequestSpec
    request: Request
    logits: np.ndarray
    output: tuple[int, ...]
    token_id: int
    masked: frozenset[int]

    @property
    def place(self) -> Place:
        position = len(self.spec.prompt_token_ids) + len(self.output)
        return Place(self.row.step, self.row.request, self.row.sample, position)

    def due(self, sampling: SamplingSpec) -> int | None:
        """Gives the token that some parameters demand; None where rounding may decide."""
        uniform = draw_uniform(self.request.seed, self.row.sample, len(self.output))
        weights = plain_token(self.logits.tolist(), sampling, self.request, self.output, self.masked)
        return drawn(weights, uniform)

    def from_engine(self) -> int | None:
        """Gives what the sampler that the engine calls picks once it is told what is right; None where it raises."""
        context = SampleContext(
            self.request.params,
            self.request.seed,
            self.row.sample,
            self.request.prompt_token_ids,
            list(self.output),
            self.masked - set(self.spec.sampling.stop_token_ids),
        )
        try:
            token_id: int = vars(core)["sample_token"](self.logits, context)  # under the name by which the engine calls
        # Broad on purpose: what a sampler raises says nothing of what it is told.
        except Exception:  # noqa: BLE001
            return None
        return token_id


class EmissionSigns:
    """Picks every token of a run once more.

    Args:
        scenario: What ran.
        drive: The run.
        expected: What each sample gives alone.
        eos_token_ids: End-of-sequence ids of the model.

    Attributes:
        found: What went wrong.
        last_step: When each sample emitted its last token.
        step_by_token: When each sample emitted each of its tokens.
    """

    def __init__(
        self, scenario: Scenario, drive: Drive, expected: Sequence[Sequence[SampleRun]], eos_token_ids: frozenset[int]
    ) -> None:
        self._scenario = scenario
        self._drive = drive
        self._expected = expected
        self._eos_token_ids = eos_token_ids
        self._output: dict[tuple[int, int], list[int]] = {}
        self.step_by_token: dict[tuple[int, int, int], int] = {}
        self.last_step: dict[tuple[int, int], int] = {}
        self.found: list[Suspicion] = []

    def look_at(self, step: StepRecord) -> None:
        """Looks at what one step emitted."""
        for row in step.rows:
            if row.emitted and row.logits is not None:
                self._look_at_row(row, row.logits)

    def _look_at_row(self, row: RowRecord, logits: np.ndarray) -> None:
        key = row.request, row.sample
        spec, request = self._scenario.requests[row.request], self._drive.driven[row.request].request
        output = self._output.setdefault(key, [])
        self.last_step[key] = row.step
        masked = self._eos_token_ids | set(spec.sampling.stop_token_ids)
        rows = logits[len(logits) - row.num_guessed - 1 :]
        for number, token_id in enumerate(row.emitted):
            self.step_by_token[*key, len(output)] = row.step
            pick = _Pick(row, spec, request, rows[min(number, len(rows) - 1)], tuple(output), token_id, masked)
            self.found += list(self._signs(pick) if number < len(rows) else ())
            if number and not _follows_its_guess(row, number):
                what = f"token {token_id} is emitted after another token than the guess that ran before it"
                self.found.append(Suspicion(row.step, Moment.EMITTED, 0, _VERIFIER, what, pick.place))
            output.append(token_id)

    def _signs(self, pick: _Pick) -> Iterator[Suspicion]:
        spec, wanted = pick.spec, pick.due(pick.spec.sampling)
        if wanted in (pick.token_id, None):
            yield from self._draw_signs(pick)
            return
        suspect = Suspect("sampler", "picking the token", sources.SAMPLER)
        if pick.row.num_guessed:
            suspect = _VERIFIER
        elif pick.from_engine() == wanted:
            suspect = Suspect("request", "what the sampler is told of it", sources.TOLD_TO_SAMPLER)
        elif spec.sampling.named:
            without = {name: replace(spec.sampling, **{name: getattr(_GREEDY, name)}) for name in spec.sampling.named}
            blamed = [name for name, sampling in without.items() if pick.due(sampling) == pick.token_id]
            applied = f"applying {' or '.join(blamed or spec.sampling.named)}"
            suspect = Suspect("logits processors", applied, sources.PROCESSORS)
            if not blamed and spec.sampling.temperature > 0:
                suspect = Suspect("sampler", f"drawing the token, or {applied}", sources.SAMPLER)
        what = f"token {pick.token_id} is picked where the logits and {_words(spec)} demand {wanted}"
        yield Suspicion(pick.row.step, Moment.EMITTED, 0, suspect, what, pick.place)

    def _draw_signs(self, pick: _Pick) -> Iterator[Suspicion]:
        """Where the token follows from this engine's random number, the number itself may be off."""
        alone, at = self._expected[pick.row.request][pick.row.sample], len(pick.output)
        due = alone.output.token_ids
        if at >= len(due) or at >= len(alone.logits) or tuple(due[:at]) != pick.output:
            return
        if np.array_equal(alone.logits[at], pick.logits) and due[at] != pick.token_id:
            is_drawn = pick.spec.sampling.temperature > 0
            operation = "drawing random numbers" if is_drawn else "picking the token"
            what = f"token {pick.token_id} is picked where the same logits alone give {due[at]}"
            suspect = Suspect("sampler", operation, sources.SAMPLER)
            yield Suspicion(pick.row.step, Moment.EMITTED, 1, suspect, what, pick.place)


def _follows_its_guess(row: RowRecord, number: int) -> bool:
    """Tells whether the guess that ran before an emitted token is the token that was emitted before it."""
    ran = row.num_known + number - 1
    return ran < len(row.token_ids) and row.token_ids[ran] == row.emitted[number - 1]


def _words(spec: RequestSpec) -> str:
    named = {name: getattr(spec.sampling, name) for name in spec.sampling.named}
    return ", ".join(f"{name} {value}" for name, value in named.items()) or "greedy choice"
