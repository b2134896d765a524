"""Are log-probabilities and logits the reference's, up to rounding?"""

from collections.abc import Mapping, Sequence

import numpy as np

from oracle.contract.expected_scores import ExpectedScores, ScoreFault, exactly, log_softmax, shared_by
from oracle.contract.filters import certain_tokens, kept_tokens
from oracle.contract.findings import Finding, Findings, Kind
from oracle.contract.form_check import Broken
from oracle.contract.processing import growth, processed
from oracle.contract.token_checks import Answer
from oracle.contract.trial import Trial, output_of
from oracle.engines.messages import EngineRequest


def check_scores(judged: list[Answer], findings: Findings) -> None:
    """Checks every score that comes with an output token, up to the first wrong one of each answer."""
    for answer in judged:
        for number, token_id in enumerate(answer.token_ids):
            fault = _fault_at(answer, number, token_id, findings)
            if fault is not None:
                message, gap, bound, blame = fault
                findings.add(
                    Finding(
                        "scores",
                        Kind.WRONG,
                        f"run {answer.run}: {message}",
                        answer.request.request_id,
                        number,
                        gap,
                        bound,
                        (blame,),
                    )
                )
                break


Fault = tuple[str, float, float, str]
"""What is wrong with a score, how far it is off, what rounding explains, and the score's name."""


def _fault_at(answer: Answer, number: int, token_id: int, findings: Findings) -> Fault | None:
    sample = answer.sample
    expected = expected_logprobs(answer, number)
    if sample.logprobs is not None and expected is not None:
        findings.see("scores")
        fault = expected.fault_of(f"logprob of token {token_id} at {number}", token_id, sample.logprobs[number])
        if fault is not None:
            return *fault, "logprobs"
    if sample.top_logprobs is not None and expected is not None:
        findings.see("scores")
        wanted = int(answer.place.value("logprobs") or 0)
        fault = _fault_of_listed(sample.top_logprobs[number], expected, wanted, f"at {number}")
        if fault is not None:
            return *fault, "top_logprobs"
    if sample.logits is not None:
        findings.see("scores")
        row, due, bound = np.array(sample.logits[number]), answer.row(number), answer.judgement.bound
        worst = int(np.abs(row - due).argmax())
        fault = exactly(due, bound).fault_of(f"logit of token {worst} at {number}", worst, float(row[worst]))
        if fault is not None:
            return *fault, "logits"
    return None


def expected_logprobs(answer: Answer, number: int) -> ExpectedScores | None:
    """Gives log-probabilities at an output token, of what the engine declares; None where no token may come."""
    row, bound = answer.row(number), 2 * answer.judgement.bound
    if answer.scores_of == "model":
        return exactly(log_softmax(row), bound)
    place = answer.at(number)
    if answer.scores_of == "processed" and float(place.value("temperature")):
        return drawn_logprobs(answer, number)
    scores = processed(row, place)
    return exactly(log_softmax(scores), bound * growth(place)) if np.isfinite(scores).any() else None


def drawn_logprobs(answer: Answer, number: int) -> ExpectedScores | None:
    """Gives the law that an output token is drawn from, as log-probabilities; None where no token may come."""
    place = answer.at(number)
    scores, temperature = processed(answer.row(number), place), float(place.value("temperature"))
    if not np.isfinite(scores).any():
        return None
    bound = answer.judgement.bound * growth(place)
    may, must = (kept(scores, place, bound) for kept in (kept_tokens, certain_tokens))
    return shared_by(scores / temperature, may, must, 2 * bound / min(temperature, 1.0))


def check_prompt_scores(trial: Trial, broken: Broken, findings: Findings) -> None:
    """Checks log-probabilities of prompt tokens, up to the first wrong one of each request."""
    for name, requests, run in trial.runs():
        for request in requests:
            output = output_of(run, request.request_id)
            if output is None or output.prompt_logprobs is None or (name, request.request_id) in broken:
                continue
            finding = _prompt_finding(trial, name, request, output.prompt_logprobs, findings)
            if finding is not None:
                findings.add(finding)


def _prompt_finding(
    trial: Trial,
    run: str,
    request: EngineRequest,
    entries: Sequence[Mapping[int, float] | None],
    findings: Findings,
) -> Finding | None:
    if trial.referee is None:
        return None
    judgement = trial.referee.judge(request.prompt_token_ids)
    wanted, bound = int(request.parameters.get("prompt_logprobs") or 0), 2 * judgement.bound
    for at, entry in enumerate(entries):
        if entry is None or at == 0:
            continue
        findings.see("prompt_scores")
        expected = exactly(log_softmax(judgement.logits[at - 1]), bound)
        fault = _fault_of_listed(entry, expected, wanted, f"at prompt token {at}")
        if fault is None and request.prompt_token_ids[at] not in entry:
            fault = f"the prompt's own token {at} is not listed", np.inf, bound
        if fault is not None:
            message, gap, _ = fault
            blame = ("prompt_logprobs",)
            return Finding(
                "prompt_scores", Kind.WRONG, f"run {run}: {message}", request.request_id, at, gap, bound, blame
            )
    return None


def _fault_of_listed(
    listed: Mapping[int, float], expected: ExpectedScores, wanted: int, where: str
) -> ScoreFault | None:
    """Finds a listed value that is wrong, or a token that should stand in the list."""
    for token_id, value in listed.items():
        if not 0 <= token_id < len(expected.lowest):
            return f"token {token_id} is listed {where}, and there is none", np.inf, expected.bound
        fault = expected.fault_of(f"listed logprob of token {token_id} {where}", token_id, value)
        if fault is not None and not expected.may_be_absent(token_id, value):
            return fault
    # Beside the likeliest tokens the emitted one may stand in the list, however unlikely it is.
    weakest = min(sorted(listed.values(), reverse=True)[:wanted], default=-np.inf)
    for token_id in np.argsort(-expected.lowest, kind="stable")[:wanted]:
        if int(token_id) in listed or not expected.is_certain[token_id]:
            continue
        gap = float(expected.lowest[token_id] - weakest)
        if len(listed) < wanted or gap > 2 * expected.bound:
            message = f"token {token_id} is among the {wanted} likeliest {where}, and is not listed"
            return message, gap, expected.bound
    return None
