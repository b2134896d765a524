"""What do a request's parameters make of a row of logits, before temperature? In plain NumPy, from the meanings.

Two steps that do not commute, such as a bias and a factor, come in the order that the engine declares.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64

from oracle.engines.parameters import DEFAULT_BY_PARAMETER

Scores = Float64[np.ndarray, " vocab"]

USUAL_ORDER = (
    "allowed_token_ids",
    "choices",
    "bad_token_sequences",
    "no_repeat_ngram_size",
    "ignore_eos",
    "min_tokens",
    "logit_bias",
    "repetition_penalty",
    "frequency_penalty",
    "presence_penalty",
)
"""Steps before temperature, for what an engine declares no order of."""

USUAL_FILTERS = ("top_k", "top_p", "min_p")
"""Filters, likewise; they see what temperature made of scores unless the engine declares that they come before it."""


@dataclass(frozen=True)
class Place:
    """Where in a request a token is chosen.

    Attributes:
        parameters: What the request asks for.
        prompt: Its prompt.
        output: Its output so far.
        eos_token_ids: What ends a request of the checkpoint.
        order: The order of steps that the engine declares.
        counts_prompt: Whether presence and frequency penalties count the prompt's tokens as well.
        bans_eos: Whether `ignore_eos` keeps EOS from coming, instead of letting the request go on after it.
    """

    parameters: Mapping[str, Any]
    prompt: tuple[int, ...]
    output: tuple[int, ...]
    eos_token_ids: tuple[int, ...] = ()
    order: tuple[str, ...] = ()
    counts_prompt: bool = False
    bans_eos: bool = False

    def value(self, name: str) -> Any:
        """Gives a parameter, at its default where the request does not name it."""
        return self.parameters.get(name, DEFAULT_BY_PARAMETER[name])

    @property
    def stop_token_ids(self) -> frozenset[int]:
        """What ends the request."""
        eos = () if self.value("ignore_eos") else self.eos_token_ids
        return frozenset((*eos, *(self.value("stop_token_ids") or ())))

    @property
    def steps(self) -> tuple[str, ...]:
        """Steps before temperature that the request asks for, in the engine's order."""
        order = (*self.order, *(name for name in USUAL_ORDER if name not in self.order))
        return tuple(name for name in order if name in USUAL_ORDER and name in self.parameters)

    @property
    def filters(self) -> tuple[str, ...]:
        """Filters that the request asks for, in the engine's order."""
        order = (*self.order, *(name for name in USUAL_FILTERS if name not in self.order))
        return tuple(name for name in order if name in USUAL_FILTERS and name in self.parameters)

    def temperature_before(self, name: str) -> float:
        """Gives what scores are divided by before a filter sees them; 1 where temperature comes after it."""
        order = self.order
        is_later = {name, "temperature"} <= set(order) and order.index(name) < order.index("temperature")
        return 1.0 if is_later else float(self.value("temperature"))


def processed(row: Scores, place: Place) -> Scores:
    """Gives the scores that a greedy choice is made by: logits after penalties, biases and masks."""
    scores = row.copy()
    for name in place.steps:
        _STEPS[name](scores, place)
    return scores


def growth(place: Place) -> float:
    """Gives the factor by which a request's parameters make rounding errors of logits grow."""
    penalty = float(place.value("repetition_penalty"))
    return max(penalty, 1.0 / penalty) if penalty > 0 else 1.0


def _mask(scores: Scores, token_ids: Collection[int]) -> None:
    """Bars tokens; one outside the vocabulary bars nothing."""
    for token_id in token_ids:
        if 0 <= token_id < len(scores):
            scores[token_id] = -np.inf


def _keep_only(scores: Scores, token_ids: Collection[int]) -> None:
    _mask(scores, set(range(len(scores))) - set(token_ids))


def _allow(scores: Scores, place: Place) -> None:
    _keep_only(scores, place.value("allowed_token_ids") or range(len(scores)))


def _choose(scores: Scores, place: Place) -> None:
    """Lets come what goes on with one of the choices, and an end where one is complete."""
    output = list(place.output)
    going_on = [list(choice) for choice in place.value("choices") or () if list(choice[: len(output)]) == output]
    nexts = {choice[len(output)] for choice in going_on if len(choice) > len(output)}
    ends = set(place.eos_token_ids) if any(len(choice) == len(output) for choice in going_on) else set()
    if place.value("choices"):
        _keep_only(scores, nexts | ends)


def _bar_sequences(scores: Scores, place: Place) -> None:
    """Bars the last token of a sequence whose others stand at the end of the output."""
    for sequence in place.value("bad_token_sequences") or ():
        *start, last = sequence
        if len(start) <= len(place.output) and list(place.output[len(place.output) - len(start) :]) == start:
            _mask(scores, (last,))


def _bar_repeats(scores: Scores, place: Place) -> None:
    size = int(place.value("no_repeat_ngram_size"))
    tokens = place.prompt + place.output
    if size < 1 or len(tokens) < size:
        return
    end = tokens[len(tokens) - size + 1 :]
    _mask(scores, {tokens[at + size - 1] for at in range(len(tokens) - size + 1) if tokens[at : at + size - 1] == end})


def _ban(scores: Scores, place: Place) -> None:
    if place.bans_eos and place.value("ignore_eos"):
        _mask(scores, place.eos_token_ids)


def _wait(scores: Scores, place: Place) -> None:
    """Bars every end, also EOS that would not end it, until `min_tokens` are out."""
    if len(place.output) < place.value("min_tokens"):
        _mask(scores, {*place.eos_token_ids, *place.stop_token_ids})


def _bias(scores: Scores, place: Place) -> None:
    for token_id, value in place.value("logit_bias") or ():
        scores[token_id] += value


def _repeat(scores: Scores, place: Place) -> None:
    penalty = float(place.value("repetition_penalty"))
    for token_id in {*place.prompt, *place.output}:
        scores[token_id] = scores[token_id] / penalty if scores[token_id] > 0 else scores[token_id] * penalty


def _count(scores: Scores, place: Place) -> None:
    for token_id, number in _counted(place).items():
        scores[token_id] -= place.value("frequency_penalty") * number


def _be_there(scores: Scores, place: Place) -> None:
    for token_id in _counted(place):
        scores[token_id] -= place.value("presence_penalty")


def _counted(place: Place) -> Counter[int]:
    return Counter(place.prompt + place.output if place.counts_prompt else place.output)


_STEPS: Mapping[str, Callable[[Scores, Place], None]] = {
    "allowed_token_ids": _allow,
    "choices": _choose,
    "bad_token_sequences": _bar_sequences,
    "no_repeat_ngram_size": _bar_repeats,
    "ignore_eos": _ban,
    "min_tokens": _wait,
    "logit_bias": _bias,
    "repetition_penalty": _repeat,
    "frequency_penalty": _count,
    "presence_penalty": _be_there,
}
