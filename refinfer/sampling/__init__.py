"""How do logits become a token, and when does a request end?"""

from refinfer.sampling.params import SamplingParams
from refinfer.sampling.sampler import greedy_token_ids
from refinfer.sampling.stopping import FinishReason, finish_reason

__all__ = ["FinishReason", "SamplingParams", "finish_reason", "greedy_token_ids"]
