"""Does a request give the same alone, in company, in another order, once more, and beside aborted neighbours?"""

from dataclasses import replace

import numpy as np

from oracle.contract.filters import law_of
from oracle.contract.findings import Finding, Findings, Kind
from oracle.contract.form_check import Broken
from oracle.contract.processing import growth, processed
from oracle.contract.referee import Referee
from oracle.contract.token_checks import place_of
from oracle.contract.trial import Trial, output_of
from oracle.engines.messages import EngineRequest, EngineRun, EngineSample

SURPRISE = 1e-9
"""Two samples that were drawn apart are the same with less than this probability: they were not drawn apart."""


def check_company(trial: Trial, broken: Broken, findings: Findings) -> None:
    """Holds every other run of a request to the one together with all others."""
    has_aborts = any(request.abort_after is not None for request in trial.scenario.requests)
    for request in trial.scenario.requests:
        if not is_determined(trial, request) or ("together", request.request_id) in broken:
            continue
        is_sampled = float(request.parameters.get("temperature", 0.0)) > 0.0
        for check, name, run in _others(trial, request, has_aborts=has_aborts):
            if (name, request.request_id) not in broken:
                findings.see("samples" if is_sampled else check)
                _compare(trial, request, "samples" if is_sampled else check, name, run, findings)


def check_agreement(trial: Trial, other: EngineRun | None, broken: Broken, findings: Findings) -> None:
    """Holds what came together to what another engine gave for the same requests; None where it gave nothing."""
    if other is None:
        return
    for request in trial.scenario.requests:
        if is_determined(trial, request) and ("together", request.request_id) not in broken:
            findings.see("agreement")
            _compare(trial, request, "agreement", "there", other, findings)


def is_determined(trial: Trial, request: EngineRequest) -> bool:
    """Tells whether a request has to give the same tokens each time: greedy, or with a seed that the engine honours."""
    if float(request.parameters.get("temperature", 0.0)) == 0.0:
        return True
    return request.parameters.get("seed") is not None and "seeded_sampling" in trial.declaration.capabilities


def _others(trial: Trial, request: EngineRequest, *, has_aborts: bool) -> list[tuple[str, str, EngineRun]]:
    """Gives the runs that a request is compared with, each with the check that it belongs to."""
    runs = [("repeat", "again", trial.again)]
    if trial.reversed is not None:
        runs.append(("order", "reversed", trial.reversed))
    if request.request_id in trial.alone:
        name = f"{request.request_id} alone"
        runs.append(("aborts" if has_aborts else "alone", name, trial.alone[request.request_id]))
    return runs


def _compare(trial: Trial, request: EngineRequest, check: str, name: str, run: EngineRun, findings: Findings) -> None:
    one, other = output_of(trial.together, request.request_id), output_of(run, request.request_id)
    if one is None or other is None:
        return
    for sample, its_other in zip(one.samples, other.samples, strict=False):
        finding = _difference(trial, request, check, name, sample, its_other)
        if finding is not None:
            findings.add(finding)
            return


def _difference(
    trial: Trial, request: EngineRequest, check: str, name: str, one: EngineSample, other: EngineSample
) -> Finding | None:
    tokens, others = one.token_ids, other.token_ids
    common = min(len(tokens), len(others))
    at = next((place for place in range(common) if tokens[place] != others[place]), common)
    if at < common:
        return _judge_difference(trial, request, check, name, tokens[: at + 1], others[at])
    if len(tokens) != len(others) and request.abort_after is None:
        message = f"{len(tokens)} tokens together, {len(others)} {name}, equal as far as both go"
        return Finding(check, Kind.WRONG, message, request.request_id, at, blame=("length",))
    return _score_difference(trial, request, check, name, one, other)


def _judge_difference(
    trial: Trial, request: EngineRequest, check: str, name: str, tokens: tuple[int, ...], other: int
) -> Finding:
    """Tells what the first token that differs is."""
    at, token_id = len(tokens) - 1, tokens[-1]
    message = f"token {token_id} at {at} together, {other} {name}"
    if trial.declaration.contract == "bitwise" or trial.referee is None or check == "samples":
        return Finding(check, Kind.WRONG, message, request.request_id, at)
    judgement = trial.referee.judge(request.prompt_token_ids + tokens)
    place = replace(place_of(trial, request), output=tokens[:-1])
    scores = processed(judgement.logits[len(request.prompt_token_ids) - 1 + at], place)
    gap, bound = abs(float(scores[token_id] - scores[other])), 2 * judgement.bound * growth(place)
    kind = Kind.TIED if gap == 0.0 else Kind.ROUNDED if gap <= bound else Kind.WRONG
    message += f"; the referee's gap between them is {gap:.3g}, rounding explains {bound:.3g}"
    return Finding(check, kind, message, request.request_id, at, gap, bound)


def _score_difference(
    trial: Trial, request: EngineRequest, check: str, name: str, one: EngineSample, other: EngineSample
) -> Finding | None:
    """Finds scores of the same tokens that differ by more than the contract lets them."""
    bound = 0.0
    if trial.declaration.contract != "bitwise":
        if trial.referee is None:
            return None
        bound = 4 * trial.referee.judge(request.prompt_token_ids + one.token_ids).bound
    for kind, mine, its in (("logprobs", one.logprobs, other.logprobs), ("logits", one.logits, other.logits)):
        if mine is None or its is None:
            continue
        number = min(len(mine), len(its))
        if not number:
            continue
        first, second = np.array(mine[:number]), np.array(its[:number])
        with np.errstate(invalid="ignore"):
            gaps = np.where(first == second, 0.0, np.abs(first - second)).reshape(number, -1)
        largest = float(gaps.max(initial=0.0))
        if not largest <= bound:
            at = int(gaps.max(axis=1).argmax())
            message = f"{kind} at {at} together and {name} differ by {largest:.3g}; {bound:.3g} is allowed"
            return Finding(check, Kind.WRONG, message, request.request_id, at, largest, bound, (kind,))
    return None


def check_samples_differ(trial: Trial, broken: Broken, findings: Findings) -> None:
    """Finds samples of one request that are the same though they were to be drawn apart."""
    if trial.referee is None:
        return
    for request in trial.scenario.requests:
        output = output_of(trial.together, request.request_id)
        temperature = float(request.parameters.get("temperature", 0.0))
        if (
            output is None
            or temperature == 0.0
            or len(output.samples) == 1
            or ("together", request.request_id) in broken
        ):
            continue
        findings.see("samples")
        first, second = output.samples[:2]
        chance = _log_chance(trial, trial.referee, request, first.token_ids)
        if first.token_ids == second.token_ids and chance < np.log(SURPRISE):
            message = f"two samples are the same {len(first.token_ids)} tokens, by chance once in {np.exp(-chance):.3g}"
            findings.add(Finding("samples", Kind.WRONG, message, request.request_id, blame=("n",)))


def _log_chance(trial: Trial, referee: Referee, request: EngineRequest, tokens: tuple[int, ...]) -> float:
    """Gives the logarithm of the probability with which a request draws some tokens."""
    rows = referee.judge(request.prompt_token_ids + tokens).logits[len(request.prompt_token_ids) - 1 :]
    chance = 0.0
    for at, token_id in enumerate(tokens):
        place = replace(place_of(trial, request), output=tokens[:at])
        share = float(law_of(processed(rows[at], place), place)[token_id])
        chance += float(np.log(share)) if share else 0.0  # one that may not come is for another check to find
    return chance
