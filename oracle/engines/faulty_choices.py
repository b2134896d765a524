"""Faults of choosing, ending and showing: each replaces one small method of the teaching engine.

Each class opens with what it does wrong, and names a report of its like where it was taken from one.
"""

import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from oracle.engines.messages import EngineRequest, EngineSample
from oracle.engines.teaching_engine import TeachingEngine
from oracle.engines.teaching_sampler import Sample, process, show


def with_parameters(sample: Sample, **parameters: Any) -> Sample:
    """Gives an answer as if something else had been asked for."""
    return replace(sample, parameters={**sample.parameters, **parameters})


class FirstRowParameters(TeachingEngine):
    """Parameters of the batch's first row are used for all (EvolvingLMMs-Lab/lmms-eval #1325, there the last)."""

    def choose(self, sample: Sample, logits: np.ndarray) -> int:
        """Chooses with the parameters of another."""
        return super().choose(replace(sample, parameters=self.running[0].parameters), logits)


class PenaltyLeaks(TeachingEngine):
    """Tokens of the answer that ended last are penalised in those that begin after it (vllm-project/vllm #43894)."""

    def __init__(self) -> None:
        self._last_tokens: list[int] = []
        self._leaked_by_sample: dict[Sample, list[int]] = {}

    def end(self, samples: Sequence[Sample], reason: str) -> None:
        """Leaves the tokens of what ends behind."""
        super().end(samples, reason)
        self._last_tokens = samples[-1].token_ids

    def choose(self, sample: Sample, logits: np.ndarray) -> int:
        """Chooses with tokens that are not its own."""
        leaked = self._leaked_by_sample.setdefault(sample, self._last_tokens)
        num_prompt_tokens = len(leaked) + sample.num_prompt_tokens
        mixed = replace(sample, token_ids=[*leaked, *sample.token_ids], num_prompt_tokens=num_prompt_tokens)
        return super().choose(mixed, logits)


class PenaltyOfOutputOnly(TeachingEngine):
    """The repetition penalty looks at the output only, not at the prompt (vllm-project/vllm-metal #69)."""

    def choose(self, sample: Sample, logits: np.ndarray) -> int:
        """Chooses without a prompt."""
        return super().choose(replace(sample, token_ids=sample.output_token_ids, num_prompt_tokens=0), logits)


class BiasDropped(TeachingEngine):
    """The bias of logits is accepted and dropped."""

    def choose(self, sample: Sample, logits: np.ndarray) -> int:
        """Chooses without bias."""
        return super().choose(with_parameters(sample, logit_bias=None), logits)


class MinTokensIgnored(TeachingEngine):
    """The least number of tokens is accepted and dropped (vllm-project/vllm #46243 counted it wrong)."""

    def samples_of(self, request: EngineRequest) -> list[Sample]:
        """Makes answers that may end at once."""
        return [with_parameters(sample, min_tokens=0) for sample in super().samples_of(request)]


class TopKOfBatch(TeachingEngine):
    """All rows draw among as many tokens as the row with the largest `top_k` (vllm-project/vllm-metal #786)."""

    def choose(self, sample: Sample, logits: np.ndarray) -> int:
        """Chooses among more than was asked for."""
        top_k = max(own.parameters["top_k"] or len(logits) for own in self.running)
        return super().choose(with_parameters(sample, top_k=top_k), logits)


class SeedIgnoredInCompany(TeachingEngine):
    """The seed counts for a request that runs alone only (vllm-project/vllm #51226)."""

    def choose(self, sample: Sample, logits: np.ndarray) -> int:
        """Draws from nowhere, in company."""
        seed = sample.seed if len(self.running) == 1 else secrets.randbits(64)
        return super().choose(replace(sample, seed=seed), logits)


class RowInSeed(TeachingEngine):
    """Draws come from the row as well as from the seed (vllm-project/vllm #17524)."""

    def choose(self, sample: Sample, logits: np.ndarray) -> int:
        """Draws by the row."""
        return super().choose(replace(sample, seed=sample.seed + self.running.index(sample)), logits)


class SamplesAlike(TeachingEngine):
    """All answers of a request draw the same numbers."""

    def choose(self, sample: Sample, logits: np.ndarray) -> int:
        """Draws as the first answer."""
        return super().choose(replace(sample, sample_index=0), logits)


class StopTokenLate(TeachingEngine):
    """A stop token ends the answer with the token after it."""

    def end_of(self, sample: Sample) -> str | None:
        """Looks for stop tokens in what was there a token ago."""
        reason = super().end_of(with_parameters(sample, stop_token_ids=None))
        return reason or super().end_of(replace(sample, token_ids=sample.token_ids[:-1]))


class MaxTokensOffByOne(TeachingEngine):
    """One token too many comes."""

    def end_of(self, sample: Sample) -> str | None:
        """Ends one token later."""
        return super().end_of(
            replace(sample, request=replace(sample.request, max_tokens=sample.request.max_tokens + 1))
        )


class NeighboursIgnoreEos(TeachingEngine):
    """EOS ends nobody while a neighbour ignores it."""

    def end_of(self, sample: Sample) -> str | None:
        """Asks the neighbours."""
        return super().end_of(with_parameters(sample, ignore_eos=any(s.parameters["ignore_eos"] for s in self.running)))


class NeighboursStopTokens(TeachingEngine):
    """Stop tokens of a neighbour end an answer too."""

    def end_of(self, sample: Sample) -> str | None:
        """Asks the neighbours."""
        stops = {token_id for own in self.running for token_id in own.parameters["stop_token_ids"] or ()}
        return super().end_of(with_parameters(sample, stop_token_ids=sorted(stops)))


class FirstTokenGoesOn(TeachingEngine):
    """An answer never ends with its first token, whatever that is (bytedance/lightseq #236)."""

    def end_of(self, sample: Sample) -> str | None:
        """Looks only once there are two."""
        is_first = len(sample.output_token_ids) == 1 < sample.request.max_tokens
        return None if is_first else super().end_of(sample)


class StopCalledLength(TeachingEngine):
    """What a stop token ends is said to have ended by its length (vllm-project/vllm #47963 has the reverse)."""

    def end_of(self, sample: Sample) -> str | None:
        """Names one reason for all ends."""
        return super().end_of(sample) and "length"


class ProcessedLogprobs(TeachingEngine):
    """Log-probabilities are those after bias and penalty, not the model's as declared (sgl-project/sglang #2178)."""

    def show(self, sample: Sample) -> EngineSample:
        """Shows what was chosen from."""
        places = range(sample.num_prompt_tokens, len(sample.token_ids))
        befores = [replace(sample, token_ids=sample.token_ids[:place]) for place in places]
        rows = [process(*pair, self.eos_token_ids) for pair in zip(befores, sample.logits, strict=True)]
        processed = show(replace(sample, logits=rows))
        return replace(super().show(sample), logprobs=processed.logprobs, top_logprobs=processed.top_logprobs)


class NeighboursLogprobs(TeachingEngine):
    """Log-probabilities are read from the row before (vllm-project/vllm #29216)."""

    def forward(self, samples: Sequence[Sample], token_ids: Sequence[Sequence[int]]) -> np.ndarray:
        """Notes the rows."""
        self._rows = super().forward(samples, token_ids)
        return self._rows

    def emit(self, sample: Sample, logits: np.ndarray) -> None:
        """Keeps another row than its own."""
        super().emit(sample, logits)
        sample.logits[-1] = self._rows[self.running.index(sample) - 1]


class LogitsChangedInPlace(TeachingEngine):
    """Bias and penalty are written into the logits that are shown (sgl-project/sglang #2178)."""

    def choose(self, sample: Sample, logits: np.ndarray) -> int:
        """Chooses, and leaves its marks."""
        token_id = super().choose(sample, logits)
        logits[:] = process(sample, logits, self.eos_token_ids)
        return token_id


class TemperatureTwice(TeachingEngine):
    """Logits are divided by the temperature twice, so that permitted tokens come too often or too rarely."""

    def choose(self, sample: Sample, logits: np.ndarray) -> int:
        """Draws at the square of the temperature."""
        return super().choose(with_parameters(sample, temperature=sample.parameters["temperature"] ** 2), logits)
