"""Do drawn tokens have the law that their parameters give them? A G-test of first tokens, at a stated error rate."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
import torch

from oracle.contract.drawing import Limits, is_legal
from oracle.contract.filters import Kept, certain_tokens, kept_tokens
from oracle.contract.findings import Finding, Findings, Kind
from oracle.contract.processing import Place, Scores, growth, processed
from oracle.contract.referee import Judgement, Referee
from oracle.engines.adapter import EngineAdapter
from oracle.engines.declaration import EngineDeclaration
from oracle.engines.messages import EngineRequest

NUM_DRAWS = 400
FALSE_ALARM_RATE = 1e-6
"""Of all tests of one engine together."""

MIN_EXPECTED = 5.0
"""Tokens that are to come less often are counted together."""

_PROMPT = (5, 3, 8, 2, 13, 21)

_SETTINGS: tuple[Mapping[str, Any], ...] = (
    {"temperature": 1.0},
    {"temperature": 0.6},
    {"temperature": 1.5, "top_k": 5},
    {"temperature": 1.5, "top_p": 0.7},
    {"temperature": 1.5, "min_p": 0.1},
    {"temperature": 1.5, "top_k": 20, "top_p": 0.8},
    {"temperature": 1.0, "repetition_penalty": 1.5},
)


def law_requests(declaration: EngineDeclaration) -> Iterator[tuple[Mapping[str, Any], list[EngineRequest]]]:
    """Gives requests of one token each, for every setting that an engine takes."""
    prompt = law_prompt(declaration)
    step = declaration.max_num_requests if declaration.shares_parameters else 1
    done = []
    for usual in _SETTINGS:
        setting = {name: _nearest(declaration.parameter_values.get(name), value) for name, value in usual.items()}
        seeds = [{"seed": number // step} if _is_seeded(declaration, setting) else {} for number in range(NUM_DRAWS)]
        if setting not in done and is_legal(declaration, setting | seeds[0]):
            done.append(setting)
            yield (
                setting,
                [EngineRequest(f"d{number}", prompt, 1, {**setting, **seed}) for number, seed in enumerate(seeds)],
            )


def law_prompt(declaration: EngineDeclaration) -> tuple[int, ...]:
    """Gives a prompt that is long enough for an engine."""
    return _PROMPT + _PROMPT[:1] * (declaration.min_prompt_tokens - len(_PROMPT))


def _nearest(allowed: Sequence[Any] | None, value: Any) -> Any:
    """Gives the value that may be tried instead of one; 0 is none for what means nothing then."""
    choices = [each for each in allowed or () if each]
    return min(choices, key=lambda each: abs(each - value)) if choices else value


def _is_seeded(declaration: EngineDeclaration, setting: Mapping[str, Any]) -> bool:
    is_free = "seed" not in declaration.parameter_values
    return is_free and "seed" in declaration.parameters and is_legal(declaration, {**setting, "seed": 0})


def check_law(
    engine: EngineAdapter, declaration: EngineDeclaration, referee: Referee, limits: Limits, findings: Findings
) -> list[tuple[Finding, EngineRequest]]:
    """Draws many first tokens in each setting, and holds their counts to the law; gives what was found.

    Raises:
        EngineError: The engine raised, crashed, hung, or answered with something else.
    """
    found = []
    settings = list(law_requests(declaration))
    judgement = referee.judge(law_prompt(declaration))
    for setting, requests in settings:
        drawn = _draw(engine, declaration, limits, requests)
        findings.see("law")
        law = first_law(judgement, setting, declaration, limits)
        message = _fault_of(drawn, law, FALSE_ALARM_RATE / len(settings))
        if message is not None:
            message = f"{len(drawn)} draws with {dict(setting)}: {message}"
            finding = Finding("law", Kind.WRONG, message, requests[0].request_id, 0, blame=tuple(setting))
            found.append((finding, requests[0]))
    return found


def _draw(
    engine: EngineAdapter, declaration: EngineDeclaration, limits: Limits, requests: Sequence[EngineRequest]
) -> list[Any]:
    """Gives the first token of each request, the first of all ends for one that was left out, and None for nothing."""
    drawn: list[Any] = []
    for start in range(0, len(requests), declaration.max_num_requests):
        together = requests[start : start + declaration.max_num_requests]
        output_by_id = {output.request_id: output for output in engine.run(together).outputs}
        for request in together:
            output = output_by_id.get(request.request_id)
            if output is None or not output.samples:
                drawn.append(None)
            elif output.samples[0].token_ids:
                drawn.append(output.samples[0].token_ids[0])
            else:
                is_end = limits.eos_token_ids and not declaration.shows_stop_token
                drawn.append(limits.eos_token_ids[0] if is_end else None)
    return drawn


@dataclass(frozen=True)
class FirstLaw:
    """What is due of first tokens.

    Attributes:
        shares: The probability of each token among those that may be drawn for certain.
        may_come: Which tokens may be drawn; of those that may not be for certain, nothing is said.
    """

    shares: Scores
    may_come: Kept


def first_law(
    judgement: Judgement, setting: Mapping[str, Any], declaration: EngineDeclaration, limits: Limits
) -> FirstLaw:
    """Gives the law of the first token of a request; where ends are left out of outputs, the first has their sum."""
    order, counts_prompt = declaration.parameter_order, declaration.penalties_count_prompt
    place = Place(setting, law_prompt(declaration), (), limits.eos_token_ids, order, counts_prompt)
    scores = processed(judgement.logits[-1], place)
    may, must = (kept(scores, place, judgement.bound * growth(place)) for kept in (kept_tokens, certain_tokens))
    weights = np.where(may, np.exp((scores - scores.max()) / float(setting["temperature"])), 0.0)
    ends = np.isin(np.arange(len(scores)), limits.eos_token_ids)
    if not declaration.shows_stop_token and ends.any():
        first = np.arange(len(scores)) == limits.eos_token_ids[0]
        weights, may = np.where(first, weights[ends].sum(), np.where(ends, 0.0, weights)), may & ~ends | first
        must = np.where(first, not (may & ends & ~must).any(), must)
    weights = np.where(must, weights, 0.0)
    return FirstLaw(weights / max(weights.sum(), np.finfo(np.float64).tiny), may)


def _fault_of(drawn: Sequence[Any], law: FirstLaw, false_alarm_rate: float) -> str | None:
    """Tells what is wrong with drawn tokens."""
    ids = [int(each) for each in drawn if isinstance(each, Integral) and 0 <= int(each) < len(law.shares)]
    if len(ids) < len(drawn):
        return f"{len(drawn) - len(ids)} gave no token of the vocabulary"
    impossible = sorted({token_id for token_id in ids if not law.may_come[token_id]})
    if impossible:
        return f"{impossible} came, and may not"
    counts = Counter(token_id for token_id in ids if law.shares[token_id] > 0.0)
    p_value = g_test(counts, law.shares)
    if p_value >= false_alarm_rate:
        return None
    return f"they do not have their law; G-test p {p_value:.2g}, at most {false_alarm_rate:.2g} is taken for chance"


def g_test(counts: Mapping[int, int], law: np.ndarray) -> float:
    """Gives the probability of counts at least as far from a law, were it theirs (Sokal and Rohlf, chapter 17).

    A token of probability 0 that came gives 0.
    """
    total = sum(counts.values())
    if any(law[token_id] == 0.0 for token_id, number in counts.items() if number):
        return 0.0
    observed = np.array([counts.get(token_id, 0) for token_id in range(len(law))], dtype=np.float64)
    observed, expected = _large_cells(observed, law * total)
    if len(observed) < 2:  # noqa: PLR2004 - one kind of outcome leaves nothing to test
        return 1.0
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(observed > 0.0, observed * np.log(observed / expected), 0.0)
    statistic, degrees = 2.0 * float(terms.sum()), len(observed) - 1
    # The upper tail of a chi-squared variable is a regularised incomplete gamma function.
    halves = torch.tensor([degrees, max(statistic, 0.0)], dtype=torch.float64) / 2.0
    return float(torch.special.gammaincc(*halves))


def _large_cells(observed: np.ndarray, expected: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Takes tokens that are to come seldom together, beginning with the rarest, until no cell is small."""
    order = np.argsort(expected)
    num_rare = int(np.searchsorted(expected[order], MIN_EXPECTED))
    while 0 < num_rare < len(order) and expected[order[:num_rare]].sum() < MIN_EXPECTED:
        num_rare += 1
    rare, others = order[:num_rare], order[num_rare:]
    if expected[rare].sum() == 0.0:
        return observed[others], expected[others]
    return np.append(observed[others], observed[rare].sum()), np.append(expected[others], expected[rare].sum())
