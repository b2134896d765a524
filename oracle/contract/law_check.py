"""Do drawn tokens have the law that their parameters give them? A G-test of first tokens, at a stated error rate."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from oracle.contract.drawing import Limits
from oracle.contract.filters import law_of
from oracle.contract.findings import Finding, Findings, Kind
from oracle.contract.processing import Place, processed
from oracle.contract.referee import Referee
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
    for setting in _SETTINGS:
        if set(setting) <= set(declaration.parameters):
            step = declaration.max_num_requests if declaration.shares_parameters else 1
            seeds = [
                {"seed": number // step} if "seed" in declaration.parameters else {} for number in range(NUM_DRAWS)
            ]
            yield (
                setting,
                [EngineRequest(f"d{number}", _PROMPT, 1, {**setting, **seed}) for number, seed in enumerate(seeds)],
            )


def check_law(
    engine: EngineAdapter, declaration: EngineDeclaration, referee: Referee, limits: Limits, findings: Findings
) -> list[tuple[Finding, EngineRequest]]:
    """Draws many first tokens in each setting, and holds their counts to the law; gives what was found.

    Raises:
        EngineError: The engine raised, crashed, hung, or answered with something else.
    """
    found = []
    settings = list(law_requests(declaration))
    row = referee.judge(_PROMPT).logits[-1]
    for setting, requests in settings:
        counts: Counter[int] = Counter()
        for start in range(0, len(requests), declaration.max_num_requests):
            for output in engine.run(requests[start : start + declaration.max_num_requests]).outputs:
                counts.update(sample.token_ids[0] for sample in output.samples if sample.token_ids)
        findings.see("law")
        law = first_law(row, setting, declaration, limits)
        p_value = g_test(counts, law)
        if p_value < FALSE_ALARM_RATE / len(settings):
            message = (
                f"{sum(counts.values())} draws with {dict(setting)} do not have their law: G-test p {p_value:.2g}, "
                f"at most {FALSE_ALARM_RATE / len(settings):.2g} is taken for chance"
            )
            finding = Finding("law", Kind.WRONG, message, requests[0].request_id, 0, blame=tuple(setting))
            found.append((finding, requests[0]))
    return found


def first_law(
    row: np.ndarray, setting: Mapping[str, Any], declaration: EngineDeclaration, limits: Limits
) -> np.ndarray:
    """Gives the probability of each token as the first of a request."""
    place = Place(
        setting, _PROMPT, (), limits.eos_token_ids, declaration.parameter_order, declaration.penalties_count_prompt
    )
    return law_of(processed(row, place), place)


def g_test(counts: Mapping[int, int], law: np.ndarray) -> float:
    """Gives the probability of counts at least as far from a law, were it theirs (Sokal and Rohlf, chapter 17).

    A token of probability 0 that came gives 0.
    """
    total = sum(counts.values())
    if any(law[token_id] == 0.0 for token_id, number in counts.items() if number):
        return 0.0
    observed = np.array([counts.get(token_id, 0) for token_id in range(len(law))], dtype=np.float64)
    expected = law * total
    is_rare = expected < MIN_EXPECTED
    observed = np.append(observed[~is_rare], observed[is_rare].sum())
    expected = np.append(expected[~is_rare], expected[is_rare].sum())
    is_there = expected > 0.0
    observed, expected = observed[is_there], expected[is_there]
    if len(observed) < 2:  # noqa: PLR2004 - one kind of outcome leaves nothing to test
        return 1.0
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(observed > 0.0, observed * np.log(observed / expected), 0.0)
    statistic, degrees = 2.0 * float(terms.sum()), len(observed) - 1
    # The upper tail of a chi-squared variable is a regularised incomplete gamma function.
    tail = torch.special.gammaincc(
        torch.tensor(degrees / 2.0).double(), torch.tensor(max(statistic, 0.0) / 2.0).double()
    )
    return float(tail)
