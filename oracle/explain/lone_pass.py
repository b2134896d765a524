"""What does one request compute alone, in one pass without a cache, and how far may rounding move each value?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from oracle.activations import ActivationCollector
from oracle.case import Case
from oracle.explain.watch import extra_inputs
from oracle.tolerances import NOISE_FACTOR, SMALLEST_NOISE_IN_EPS
from refinfer.cache import CausalAttentionView
from refinfer.model import Llama, load_model


@dataclass(frozen=True)
class LonePass:
    """One sample by itself.

    Attributes:
        token_ids: All its tokens.
        activations: What every module gives, by position.
        bounds: For each, how far another order of adding up may move a value.
    """

    token_ids: tuple[int, ...]
    activations: Mapping[str, Tensor]
    bounds: Mapping[str, float]


class LonePasses:
    """The samples of a case, each by itself.

    Args:
        case: The case.
    """

    def __init__(self, case: Case) -> None:
        self._case = case
        self._wide: Llama | None = None
        self._passes: dict[tuple[int, int], LonePass] = {}

    def of(self, request: int, sample: int) -> LonePass:
        """Gives one of them."""
        if (request, sample) not in self._passes:
            output = self._case.lone_samples[request][sample].output.token_ids
            token_ids = (*self._case.scenario.requests[request].prompt_token_ids, *output)
            self._passes[request, sample] = self._run(token_ids)
        return self._passes[request, sample]

    def _run(self, token_ids: tuple[int, ...]) -> LonePass:
        scenario = self._case.scenario
        model = self._case.loaded(batch_invariant=scenario.batch_invariant).model
        activations = collect_all(model, token_ids)
        if scenario.batch_invariant:
            return LonePass(token_ids, activations, dict.fromkeys(activations, 0.0))
        if self._wide is None:
            self._wide = load_model(self._case.folder, dtype="float64", batch_invariant=False)
        wide = collect_all(self._wide, token_ids)
        eps = torch.finfo(model.dtype).eps
        return LonePass(
            token_ids, activations, {name: noise(own, wide[name], eps) for name, own in activations.items()}
        )


def collect_all(model: Llama, token_ids: Sequence[int]) -> dict[str, Tensor]:
    """Gives what every module gives for one request in one pass, in the order of execution."""
    view = CausalAttentionView([len(token_ids)])
    with torch.no_grad(), ActivationCollector(model, input_paths=extra_inputs(model)) as collector:
        model(torch.tensor(list(token_ids)), torch.arange(len(token_ids)), view)
    return collector.records


def noise(own: Tensor, wide: Tensor, eps: float) -> float:
    """Gives how far rounding may move a value: some times as far as it did here."""
    wide = wide.to(torch.float64)
    error = float((own.to(torch.float64) - wide).abs().max())
    return NOISE_FACTOR * max(error, SMALLEST_NOISE_IN_EPS * eps * float(wide.abs().max()))
