"""Is each token the one that its request's parameters demand, and did each request end where it should?"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from oracle.contract.filters import Kept, kept_tokens
from oracle.contract.findings import Finding, Findings, Kind
from oracle.contract.form_check import Broken
from oracle.contract.processing import USUAL_FILTERS, USUAL_ORDER, Place, growth, processed
from oracle.contract.referee import Judgement
from oracle.contract.trial import Trial, output_of
from oracle.engines.messages import EngineRequest, EngineSample
from oracle.errors import ReferenceUnavailable

TOKEN_PARAMETERS = (*USUAL_ORDER, *USUAL_FILTERS, "temperature")
"""Parameters that change which token comes."""

ANOTHER = "another request's parameters"
"""What is to blame where a token would be right for a neighbour."""


@dataclass(frozen=True)
class Answer:
    """One sample of one request in one run, with what the referee says of its tokens.

    Attributes:
        run: The run's name.
        request: The request as it ran.
        sample: What came.
        judgement: Of prompt and output.
        place: Where its first token was chosen; others follow by `at`.
        scores_of: What its log-probabilities are of.
    """

    run: str
    request: EngineRequest
    sample: EngineSample
    judgement: Judgement
    place: Place
    scores_of: str

    @property
    def token_ids(self) -> tuple[int, ...]:
        """The tokens that are judged; what comes beyond `max_tokens`, perhaps without end, is not."""
        return self.sample.token_ids[: self.request.max_tokens]

    def at(self, number: int, parameters: Mapping[str, Any] | None = None) -> Place:
        """Gives where output token `number` was chosen, perhaps with other parameters."""
        return replace(
            self.place,
            output=self.sample.token_ids[:number],
            parameters=self.place.parameters if parameters is None else parameters,
        )

    def row(self, number: int) -> np.ndarray:
        """Gives the logits that output token `number` was chosen from."""
        row: np.ndarray = self.judgement.logits[len(self.request.prompt_token_ids) - 1 + number]
        return row


def answers(trial: Trial, broken: Broken) -> list[Answer]:
    """Gives every sample that can be judged; none where there is no referee."""
    if trial.referee is None:
        return []
    found = []
    for name, requests, run in trial.runs():
        for request in requests:
            output = output_of(run, request.request_id)
            if output is None or (name, request.request_id) in broken:
                continue
            found += [answer_of(trial, name, request, sample) for sample in output.samples]
    return found


def answer_of(trial: Trial, run: str, request: EngineRequest, sample: EngineSample) -> Answer:
    """Lets the referee judge one sample.

    Raises:
        ReferenceUnavailable: There is no referee.
    """
    if trial.referee is None:
        message = f"no reference judges {request.request_id}"
        raise ReferenceUnavailable(message)
    judgement = trial.referee.judge(request.prompt_token_ids + sample.token_ids[: request.max_tokens])
    return Answer(run, request, sample, judgement, place_of(trial, request), trial.declaration.scores_of)


def place_of(trial: Trial, request: EngineRequest) -> Place:
    """Gives where the first token of a request is chosen."""
    return Place(
        request.parameters,
        request.prompt_token_ids,
        (),
        trial.eos_token_ids,
        trial.declaration.parameter_order,
        trial.declaration.penalties_count_prompt,
        trial.declaration.ignore_eos == "bans",
    )


def check_tokens(trial: Trial, judged: list[Answer], findings: Findings) -> None:
    """Judges every token of every answer, up to the first wrong one of each."""
    for answer in judged:
        for number, token_id in enumerate(answer.token_ids):
            findings.see("tokens")
            findings.num_reference_ties += _is_reference_another(answer, number)
            finding = _judge_token(trial, answer, number, token_id)
            if finding is not None:
                findings.add(finding)
                if finding.kind is Kind.WRONG:
                    break


def _is_reference_another(answer: Answer, number: int) -> bool:
    """Tells whether rounding makes the reference itself take another token than the one that is due."""
    place, narrow = answer.at(number), answer.judgement.narrow
    if narrow is None or float(place.value("temperature")):
        return False
    its_row: np.ndarray = narrow[len(answer.request.prompt_token_ids) - 1 + number]
    return bool(processed(its_row, place).argmax() != processed(answer.row(number), place).argmax())


def _judge_token(trial: Trial, answer: Answer, number: int, token_id: int) -> Finding | None:
    place, bound = answer.at(number), answer.judgement.bound
    scores, bound = processed(answer.row(number), place), bound * growth(place)
    if not np.isfinite(scores).any():
        return None  # the parameters leave no token
    due = int(scores.argmax())
    is_greedy = float(place.value("temperature")) == 0.0
    if token_id == due or (not is_greedy and kept_tokens(scores, place, bound)[token_id]):
        return None
    gap = float(scores[due] - scores[token_id])
    kind = Kind.WRONG
    if is_greedy and gap <= 2 * bound:
        kind = Kind.TIED if gap == 0.0 else Kind.ROUNDED
    blame = _blame(trial, answer, number, token_id) if kind is Kind.WRONG else ()
    demanded = f"{due} was due" if is_greedy else "its parameters do not let it be drawn"
    message = (
        f"run {answer.run}: token {token_id} at {number}, and {demanded}; "
        f"the referee's gap between them is {gap:.3g}, rounding explains {2 * bound:.3g}"
        + (f"; it would be right but for {' and '.join(blame)}" if blame else "")
    )
    return Finding("tokens", kind, message, answer.request.request_id, number, gap, 2 * bound, blame)


def _blame(trial: Trial, answer: Answer, number: int, token_id: int) -> tuple[str, ...]:
    """Tells which parameter a wrong token would be right without, or whose parameters it would be right with."""

    def kept_with(parameters: Mapping[str, Any]) -> Kept:
        place = answer.at(number, parameters)
        scores = processed(answer.row(number), place)
        return kept_tokens(scores, place, answer.judgement.bound * growth(place))

    own = answer.place.parameters
    for name in TOKEN_PARAMETERS:
        if name in own and kept_with({key: value for key, value in own.items() if key != name})[token_id]:
            return (name,)
    others = [request for request in trial.scenario.requests if request.request_id != answer.request.request_id]
    # A neighbour that may draw nearly anything would explain every token.
    theirs = [kept for kept in (kept_with(request.parameters) for request in others) if 2 * kept.sum() < len(kept)]
    return (ANOTHER,) if any(kept[token_id] for kept in theirs) else ()


def see_effects(judged: list[Answer], findings: Findings) -> None:
    """Counts which parameters were asked for in the first run, and which changed what came."""
    for answer in judged:
        if answer.run != "together":
            continue
        own = answer.place.parameters
        for name in own:
            findings.asked[name] += 1
            findings.effects[name] += _EFFECTS.get(name, _changes_a_token)(answer, name)


def _changes_a_token(answer: Answer, name: str) -> bool:
    if name not in TOKEN_PARAMETERS:
        return True  # that it has no effect on tokens is what other checks hold it to
    without = {key: value for key, value in answer.place.parameters.items() if key != name}
    for number in range(len(answer.token_ids)):
        row, place, other = answer.row(number), answer.at(number), answer.at(number, without)
        if name in USUAL_FILTERS:
            scores, bound = processed(row, place), answer.judgement.bound
            if not np.array_equal(kept_tokens(scores, place, bound), kept_tokens(scores, other, bound)):
                return True
        elif name == "temperature":
            if answer.sample.token_ids[number] != int(processed(row, place).argmax()):
                return True
        elif int(processed(row, place).argmax()) != int(processed(row, other).argmax()):
            return True
    return False


def _ends_it(answer: Answer, name: str) -> bool:
    last = answer.sample.token_ids[-1:] or (answer.sample.stop_token_id,)
    return last[0] in (answer.place.value(name) or ())


def _passes_eos(answer: Answer, name: str) -> bool:
    return bool(set(answer.sample.token_ids) & set(answer.place.eos_token_ids)) or _changes_a_token(answer, name)


_EFFECTS: Mapping[str, Callable[[Answer, str], bool]] = {"stop_token_ids": _ends_it, "ignore_eos": _passes_eos}
