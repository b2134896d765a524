"""Are log-probabilities and logits the reference's, up to rounding?"""

from collections.abc import Mapping, Sequence

import numpy as np

from oracle.contract.filters import kept_tokens
from oracle.contract.findings import Finding, Findings, Kind
from oracle.contract.form_check import Broken
from oracle.contract.processing import growth, processed
from oracle.contract.token_checks import Answer
from oracle.contract.trial import Trial, output_of
from oracle.engines.messages import EngineRequest

AS_GOOD_AS_NEVER = -1e4
"""What lies below stands for minus infinity in engines that mask with a large number."""


def check_scores(trial: Trial, judged: list[Answer], findings: Findings) -> None:
    """Checks every score that comes with an output token, up to the first wrong one of each answer."""
    for answer in judged:
        for number, token_id in enumerate(answer.token_ids):
            fault = _fault_at(trial, answer, number, token_id, findings)
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


def _fault_at(trial: Trial, answer: Answer, number: int, token_id: int, findings: Findings) -> Fault | None:
    sample = answer.sample
    logprobs, bound = expected_logprobs(trial, answer, number)
    if sample.logprobs is not None:
        findings.see("scores")
        fault = _distance(
            f"logprob of token {token_id} at {number}", sample.logprobs[number], logprobs[token_id], bound
        )
        if fault is not None:
            return *fault, "logprobs"
    if sample.top_logprobs is not None:
        findings.see("scores")
        wanted = int(answer.place.value("logprobs") or 0)
        listed = _fault_of_listed(sample.top_logprobs[number], logprobs, wanted, bound, f"at {number}")
        if listed is not None:
            return *listed, "top_logprobs"
    if sample.logits is not None:
        findings.see("scores")
        row, expected = np.array(sample.logits[number]), answer.row(number)
        worst = int(np.abs(row - expected).argmax())
        fault = _distance(f"logit of token {worst} at {number}", row[worst], expected[worst], answer.judgement.bound)
        if fault is not None:
            return *fault, "logits"
    return None


def expected_logprobs(trial: Trial, answer: Answer, number: int) -> tuple[np.ndarray, float]:
    """Gives log-probabilities at an output token, of what the engine declares, and how far rounding may move them."""
    row, bound = answer.row(number), 2 * answer.judgement.bound
    if trial.declaration.scores_of == "model":
        return log_softmax(row), bound
    place = answer.at(number)
    scores = processed(row, place)
    if trial.declaration.scores_of == "penalised":
        return log_softmax(scores), bound * growth(place)
    temperature = float(place.value("temperature")) or 1.0
    if float(place.value("temperature")):
        scores = np.where(kept_tokens(scores, place, answer.judgement.bound), scores, -np.inf)
    return log_softmax(scores / temperature), bound * growth(place) / min(temperature, 1.0)


def log_softmax(row: np.ndarray) -> np.ndarray:
    """Gives log-probabilities of logits."""
    shifted = row - row.max()
    result: np.ndarray = shifted - np.log(np.exp(shifted).sum())
    return result


def _distance(what: str, value: float, expected: float, bound: float) -> tuple[str, float, float] | None:
    gap = abs(float(value) - float(expected))
    if value == expected or gap <= bound:
        return None
    return f"{what} is {value:.7g}, and {expected:.7g} was due; rounding explains {bound:.3g}", gap, bound


def _fault_of_listed(
    listed: Mapping[int, float], logprobs: np.ndarray, wanted: int, bound: float, where: str
) -> tuple[str, float, float] | None:
    """Finds a listed value that is wrong, or a token that should stand in the list."""
    for token_id, value in listed.items():
        if not 0 <= token_id < len(logprobs):
            return f"token {token_id} is listed {where}, and there is none", np.inf, bound
        if np.isfinite(value) or np.isfinite(logprobs[token_id]):
            fault = _distance(f"listed logprob of token {token_id} {where}", value, float(logprobs[token_id]), bound)
            if fault is not None and value > AS_GOOD_AS_NEVER:
                return fault
    best = np.argsort(-logprobs, kind="stable")[:wanted]
    for token_id in best:
        lacks = int(token_id) not in listed and np.isfinite(logprobs[token_id])
        gap = float(logprobs[token_id] - min(listed.values(), default=-np.inf))
        if lacks and (len(listed) < min(wanted, len(logprobs)) or gap > 2 * bound):
            return f"token {token_id} is among the {wanted} likeliest {where}, and is not listed", gap, bound
    return None


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
        logprobs = log_softmax(judgement.logits[at - 1])
        fault = _fault_of_listed(entry, logprobs, wanted, bound, f"at prompt token {at}")
        if fault is None and request.prompt_token_ids[at] not in entry:
            fault = f"the prompt's own token {at} is not listed", np.inf, bound
        if fault is not None:
            message, gap, _ = fault
            blame = ("prompt_logprobs",)
            return Finding(
                "prompt_scores", Kind.WRONG, f"run {run}: {message}", request.request_id, at, gap, bound, blame
            )
    return None
