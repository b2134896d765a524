"""What is the next token of a request drawn from, besides its logits?"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from refinfer.sampling.params import SamplingParams


@dataclass(frozen=True, slots=True)
class SampleContext:
    """All that decides the next token of one answer, besides its logits.

    Nothing of it comes from the batch, the step or the clock, so neither does the token.

    Attributes:
        params: The request's parameters.
        seed: What randomness comes from: the parameters' seed, or a fresh one where they have none.
        sample_index: Which of the request's answers this is, counted from 0.
        prompt_token_ids: The prompt.
        output_token_ids: The tokens of the answer so far; how many there are is the position that is drawn for.
        eos_token_ids: End-of-sequence ids of the model.
    """

    params: SamplingParams
    seed: int
    sample_index: int
    prompt_token_ids: Sequence[int]
    output_token_ids: Sequence[int]
    eos_token_ids: frozenset[int]

    def after(self, token_ids: Sequence[int]) -> "SampleContext":
        """Gives what the next token is drawn from once the answer has gone on with these."""
        if not token_ids:
            return self
        return replace(self, output_token_ids=[*self.output_token_ids, *token_ids])
