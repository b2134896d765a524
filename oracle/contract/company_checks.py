"""Does a request give the same alone, in company, in another order, once more, and beside aborted neighbours?"""

from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from oracle.contract.findings import Finding, Findings, Kind
from oracle.contract.form_check import Broken
from oracle.contract.processing import Place, growth, processed
from oracle.contract.score_checks import drawn_logprobs, expected_logprobs
from oracle.contract.token_checks import Answer, answer_of, place_of
from oracle.contract.trial import Trial, output_of
from oracle.engines.messages import EngineRequest, EngineRun, EngineSample

SURPRISE = 1e-9
"""Two samples that were drawn apart are the same with less than this probability: they were not drawn apart."""


@dataclass(frozen=True)
class Comparison:
    """Two runs of one request that are held to each other, the first of them together with all others.

    Attributes:
        trial: The trial.
        request: The request.
        check: The check that it belongs to.
        name: The name of the other run.
    """

    trial: Trial
    request: EngineRequest
    check: str
    name: str

    @property
    def is_bitwise(self) -> bool:
        """Whether the engine claims that not one bit differs; of another engine it claims nothing."""
        return self.trial.declaration.contract == "bitwise" and self.check != "agreement"

    def finding(
        self, kind: Kind, message: str, at: int, gap: float | None = None, bound: float | None = None, *blame: str
    ) -> Finding:
        """Makes a finding about this comparison."""
        return Finding(self.check, kind, message, self.request.request_id, at, gap, bound, blame)


def check_company(trial: Trial, broken: Broken, findings: Findings) -> None:
    """Holds every other run of a request to the one together with all others."""
    has_aborts = any(request.abort_after is not None for request in trial.scenario.requests)
    for request in trial.scenario.requests:
        if not is_determined(trial, request) or ("together", request.request_id) in broken:
            continue
        for check, name, run in _others(trial, request, has_aborts=has_aborts):
            if (name, request.request_id) not in broken:
                own = "samples" if _temperature(request) else check
                _compare(Comparison(trial, request, own, name), run, findings)


def check_agreement(trial: Trial, other: EngineRun | None, broken: Broken, findings: Findings) -> None:
    """Holds greedy tokens that came together to what another engine gave for the same requests.

    What another engine draws is its own affair, also with the same seed, and its scores may be of something else.

    Args:
        trial: The trial.
        other: What the other engine gave; None where it gave nothing.
        broken: What cannot be judged.
        findings: Where what is found goes.
    """
    for request in trial.scenario.requests:
        if other is not None and not _temperature(request) and ("together", request.request_id) not in broken:
            _compare(Comparison(trial, request, "agreement", "there"), other, findings)


def is_determined(trial: Trial, request: EngineRequest) -> bool:
    """Tells whether a request has to give the same tokens each time: greedy, or with a seed that the engine honours."""
    if not _temperature(request):
        return True
    return request.parameters.get("seed") is not None and "seeded_sampling" in trial.declaration.capabilities


def _temperature(request: EngineRequest) -> float:
    return float(request.parameters.get("temperature", 0.0))


def _others(trial: Trial, request: EngineRequest, *, has_aborts: bool) -> list[tuple[str, str, EngineRun]]:
    """Gives the runs that a request is compared with, each with the check that it belongs to."""
    runs = [("repeat", "again", trial.again)]
    if trial.reversed is not None:
        runs.append(("order", "reversed", trial.reversed))
    if request.request_id in trial.alone:
        name = f"{request.request_id} alone"
        runs.append(("aborts" if has_aborts else "alone", name, trial.alone[request.request_id]))
    return runs


def _compare(comparison: Comparison, run: EngineRun, findings: Findings) -> None:
    request_id = comparison.request.request_id
    one, other = output_of(comparison.trial.together, request_id), output_of(run, request_id)
    if one is None or other is None or len(one.samples) != len(other.samples):
        return
    findings.see(comparison.check)
    for sample, its_other in zip(one.samples, other.samples, strict=True):
        finding = _difference(comparison, sample, its_other)
        if finding is not None:
            findings.add(finding)
            return


def _difference(comparison: Comparison, one: EngineSample, other: EngineSample) -> Finding | None:
    most = comparison.request.max_tokens  # what comes beyond is another check's affair
    tokens, others = one.token_ids[:most], other.token_ids[:most]
    common = min(len(tokens), len(others))
    at = next((place for place in range(common) if tokens[place] != others[place]), common)
    if at < common:
        message = f"token {tokens[at]} at {at} together, {others[at]} {comparison.name}"
        return _judged(comparison, message, tokens[:at], (tokens[at], others[at]))
    if len(tokens) != len(others) and comparison.request.abort_after is None:
        message = f"{len(tokens)} tokens together, {len(others)} {comparison.name}, equal as far as both go"
        longer = tokens if len(tokens) > common else others
        return _judged(comparison, message, longer[:common], (longer[common], None))
    return None if comparison.check == "agreement" else _score_difference(comparison, one, other)


def _judged(
    comparison: Comparison, message: str, output: tuple[int, ...], differing: tuple[int, int | None]
) -> Finding:
    """Tells what the first difference is; None among the tokens that differ stands for an end."""
    at, trial = len(output), comparison.trial
    blame = ("length",) if None in differing else ()
    if trial.referee is None or comparison.is_bitwise:
        return comparison.finding(Kind.WRONG, message, at, None, None, *blame)
    if comparison.check == "samples":
        # Half precision moves probabilities by percents, so that the same draw gives another token now and then.
        kind = Kind.WRONG if trial.declaration.dtype == "float32" else Kind.ROUNDED
        return comparison.finding(kind, message, at, None, None, *blame)
    prompt = comparison.request.prompt_token_ids
    judgement = trial.referee.judge(prompt + output)
    place = replace(place_of(trial, comparison.request), output=output)
    scores = processed(judgement.logits[-1], place)
    first, second = (_score_of(trial, place, scores, token_id) for token_id in differing)
    gap, bound = abs(first - second) if first != second else 0.0, 2 * judgement.bound * growth(place)
    kind = Kind.TIED if gap == 0.0 else Kind.ROUNDED if gap <= bound else Kind.WRONG
    message += f"; the referee's gap between them is {gap:.3g}, rounding explains {bound:.3g}"
    return comparison.finding(kind, message, at, gap, bound, *(blame if kind is Kind.WRONG else ()))


def _score_of(trial: Trial, place: Place, scores: np.ndarray, token_id: int | None) -> float:
    """Gives the score of a token, or of the likeliest end that an engine leaves out of its output."""
    if token_id is not None:
        return float(scores[token_id])
    stops = [] if trial.declaration.shows_stop_token else [each for each in place.stop_token_ids if each < len(scores)]
    return max((float(scores[each]) for each in stops), default=-np.inf)


def _score_difference(comparison: Comparison, one: EngineSample, other: EngineSample) -> Finding | None:
    """Finds scores of the same tokens that differ by more than the contract lets them."""
    trial, request = comparison.trial, comparison.request
    if trial.referee is None and not comparison.is_bitwise:
        return None
    answer = None if comparison.is_bitwise else answer_of(trial, "together", request, one)
    for kind, mine, its in (("logprobs", one.logprobs, other.logprobs), ("logits", one.logits, other.logits)):
        for at in range(min(len(mine or ()), len(its or ()), request.max_tokens)):
            first, second = np.array((mine or ())[at]), np.array((its or ())[at])
            with np.errstate(invalid="ignore"):
                gaps = np.where(first == second, 0.0, np.abs(first - second))
            gap, bound = float(np.max(gaps)), 0.0 if answer is None else _allowed(answer, at, kind)
            if not gap <= bound:
                message = f"{kind} at {at} together and {comparison.name} differ by {gap:.3g}; {bound:.3g} is allowed"
                return comparison.finding(Kind.WRONG, message, at, gap, bound, kind)
    return None


def _allowed(answer: Answer, at: int, kind: str) -> float:
    """Gives by how much two scores of one token may differ that are both within rounding of what is due."""
    if kind == "logits":
        return 2 * answer.judgement.bound
    expected, token_id = expected_logprobs(answer, at), answer.sample.token_ids[at]
    if expected is None or not np.isfinite(expected.lowest[token_id]):
        return float("inf")  # nothing is due
    return 2 * expected.bound + float(expected.highest[token_id] - expected.lowest[token_id])


def check_samples_differ(trial: Trial, broken: Broken, findings: Findings) -> None:
    """Finds samples of one request that are the same though they were to be drawn apart."""
    if trial.referee is None:
        return
    for request in trial.scenario.requests:
        output = output_of(trial.together, request.request_id)
        if output is None or not _temperature(request) or len(output.samples) == 1:
            continue
        if ("together", request.request_id) in broken:
            continue
        findings.see("samples")
        finding = _same_samples(trial, request, output.samples)
        if finding is not None:
            findings.add(finding)


def _same_samples(trial: Trial, request: EngineRequest, samples: tuple[EngineSample, ...]) -> Finding | None:
    for one, other in combinations(samples, 2):
        if one.token_ids != other.token_ids:
            continue
        answer = answer_of(trial, "together", request, one)
        laws = [drawn_logprobs(answer, at) for at in range(len(answer.token_ids))]
        chance = sum(
            float(law.highest[token_id])
            for law, token_id in zip(laws, answer.token_ids, strict=True)
            if law is not None and np.isfinite(law.highest[token_id])
        )
        if chance < np.log(SURPRISE):
            message = f"two samples are the same {len(one.token_ids)} tokens, by chance once in {np.exp(-chance):.3g}"
            return Finding("samples", Kind.WRONG, message, request.request_id, blame=("n",))
    return None
