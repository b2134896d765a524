"""Where does a run part from the reference? The first step, request, position and module, and which side is off."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import numpy as np

from oracle.divergence import Divergence, first_divergence
from oracle.expectation import Expectation, Oracles, widened
from oracle.passes import Part, alone_passes, chunked_passes, engine_passes
from oracle.scenario import Scenario
from oracle.subjects import MODES, options_of
from refinfer import LLM, SamplingParams, load_model

ALONE = "alone"
CHUNKED = "chunked"

WAYS = (ALONE, CHUNKED, *MODES)
"""Ways of running a scenario, the simplest first.

`alone` runs each prompt by itself in one pass, in the plain manner, whose bits are the reference's.
`chunked` prefills all prompts in their chunks, and the modes run the requests to their end.
"""


class Culprit(StrEnum):
    """Which side a divergence is laid to, once the witness is heard."""

    SUBJECT = "the witness sides with the reference: the subject is off"
    REFERENCE = "the witness sides with the subject: the reference is off"
    NOBODY = "both are within rounding of the witness: they round differently, and neither is shown to be off"


@dataclass(frozen=True)
class Line:
    """The largest differences under one name, over the tokens of one part.

    Attributes:
        name: The name.
        from_reference: Of subject and reference.
        from_witness: Of subject and witness.
        between_oracles: Of reference and witness.
        bound: What is permitted between the subject and the side that judges it.
        position: The first position of the request that is further off; None where all agree.
    """

    name: str
    from_reference: float
    from_witness: float
    between_oracles: float
    bound: float
    position: int | None


@dataclass(frozen=True)
class Finding:
    """The first divergence of a run, with the witness's word on it.

    Attributes:
        divergence: The name, and the position in the request.
        culprit: Which side is off.
        values: Subject's, reference's and witness's value of the element that differs most at that position.
    """

    divergence: Divergence
    culprit: Culprit
    values: tuple[float, float, float]


@dataclass(frozen=True)
class Walk:
    """All figures of one part of a run: the part that differs first, or the last one if none does.

    Attributes:
        step: Its pass, counted from 0.
        request_index: Its request.
        lines: The figures under each name, in the order of execution.
        finding: What differs; None if nothing does, in this part and all before it.
    """

    step: int
    request_index: int
    lines: tuple[Line, ...]
    finding: Finding | None

    def __str__(self) -> str:
        """Says it in one sentence."""
        if self.finding is None:
            return f"nothing differs in {self.step + 1} step{'s' if self.step else ''}"
        return f"step {self.step}, request {self.request_index}: {self.finding.divergence}"


def walk_scenario(scenario: Scenario, folder: Path, way: str, oracles: Oracles) -> Walk:
    """Runs a scenario in one way, and walks it.

    A mode runs twice: once as it is, for the tokens that the oracles are asked about, and once with hooks.

    Args:
        scenario: What runs.
        folder: The checkpoint.
        way: One of `WAYS`.
        oracles: Of that checkpoint, in the scenario's dtype.

    Raises:
        ActivationMismatch: A step ran other tokens than its requests had to run.
    """
    prompts = [request.prompt_token_ids for request in scenario.requests]
    if way in (ALONE, CHUNKED):
        is_invariant = scenario.batch_invariant and way == CHUNKED
        model = load_model(folder, dtype=scenario.dtype, batch_invariant=is_invariant)
        cuts = [request.cuts for request in scenario.requests]
        passes = alone_passes(model, prompts) if way == ALONE else chunked_passes(model, prompts, cuts)
        return walk(passes, oracles.expect(prompts), is_bitwise=way == ALONE)
    llm = LLM(
        folder,
        dtype=scenario.dtype,
        max_num_seqs=scenario.max_num_seqs,
        batch_invariant=scenario.batch_invariant,
        **options_of(way),
    )
    params = [
        SamplingParams(temperature=0.0, max_tokens=request.max_tokens, ignore_eos=request.ignore_eos)
        for request in scenario.requests
    ]
    requests = llm.make_requests([list(prompt) for prompt in prompts], params)
    core, states = llm.start(requests)
    while core.has_unfinished_requests():
        core.step()
    expectations = oracles.expect([state.token_ids for state in states])
    return walk(engine_passes(llm, requests), expectations, is_bitwise=False)


def walk(passes: Iterable[Sequence[Part]], expectations: Sequence[Expectation], *, is_bitwise: bool) -> Walk:
    """Walks a run pass by pass, up to the first that differs from what is expected.

    Of several requests of one pass the one whose divergence runs first counts.

    Args:
        passes: The run, at least one pass; it goes on only until something differs.
        expectations: For each request, what the oracles say of all its tokens.
        is_bitwise: Whether the subject does the same operations on the same shapes as the reference,
            so that no difference is permitted.

    Raises:
        ActivationMismatch: A pass ran other tokens than its requests had to run.
    """
    for step, parts in enumerate(passes):
        compared = [(part, _compare(part, expectations[part.request_index], is_bitwise=is_bitwise)) for part in parts]
        part, lines = min(compared, key=lambda entry: _place_of_divergence(entry[1]))
        place = _place_of_divergence(lines)
        if place < len(lines):
            finding = _finding(part, expectations[part.request_index], lines, place)
            return Walk(step, part.request_index, lines, finding)
    return Walk(step, part.request_index, lines, None)


def _place_of_divergence(lines: Sequence[Line]) -> int:
    """Gives the place of the first line that differs, and the number of lines if none does."""
    return next((place for place, line in enumerate(lines) if line.position is not None), len(lines))


def _compare(part: Part, expectation: Expectation, *, is_bitwise: bool) -> tuple[Line, ...]:
    is_exact = is_bitwise and not expectation.is_judged_by_witness
    lines = []
    for name, all_rows in expectation.judge.items():
        own = widened(part.activations[name])
        positions = part.positions[-len(own) :]  # logits may have been computed for the last ones only
        rows = slice(positions.start, positions.stop)
        bound = 0.0 if is_exact else expectation.noise_by_name[name]
        size = float(np.abs(all_rows[rows]).max())
        divergence = first_divergence({name: own}, {name: all_rows[rows]}, (name,), bound / size if size else 0.0)
        reference, witness = expectation.reference[name][rows], expectation.witness[name][rows]
        lines.append(
            Line(
                name,
                from_reference=_largest(own, reference),
                from_witness=_largest(own, witness),
                between_oracles=_largest(reference, witness),
                bound=bound,
                position=None if divergence is None else positions[divergence.position],
            )
        )
    return tuple(lines)


def _finding(part: Part, expectation: Expectation, lines: Sequence[Line], place: int) -> Finding:
    """Hears the witness on the position at which a line differs."""
    line = lines[place]
    position = line.position or 0
    own = widened(part.activations[line.name])[position - part.positions.stop].ravel()
    reference, witness, judge = (
        side[line.name][position].ravel() for side in (expectation.reference, expectation.witness, expectation.judge)
    )
    if _largest(own, witness) <= expectation.noise_by_name[line.name]:
        culprit = Culprit.NOBODY
    elif _largest(own, witness) < _largest(reference, witness):
        culprit = Culprit.REFERENCE
    else:
        culprit = Culprit.SUBJECT
    element = int(np.nan_to_num(np.abs(own - judge), nan=np.inf).argmax())
    return Finding(
        Divergence(
            line.name,
            position,
            largest=line.from_witness if expectation.is_judged_by_witness else line.from_reference,
            bound=line.bound,
            last_agreeing=lines[place - 1].name if place else None,
        ),
        culprit,
        (float(own[element]), float(reference[element]), float(witness[element])),
    )


def _largest(one: np.ndarray, other: np.ndarray) -> float:
    with np.errstate(invalid="ignore"):  # infinity less infinity
        return float(np.abs(one - other).max())
