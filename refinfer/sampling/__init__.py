"""How do logits become a token, and when does a request end?"""

from refinfer.sampling.context import SampleContext
from refinfer.sampling.logits import probabilities
from refinfer.sampling.logprobs import TokenLogprob, log_softmax, token_logprobs
from refinfer.sampling.params import SamplingParams, check_vocabulary
from refinfer.sampling.sampler import effective_seed, sample_token
from refinfer.sampling.stop_strings import StopStringWatcher
from refinfer.sampling.stopping import Finish, FinishReason, can_stop, finish

__all__ = [
    "Finish",
    "FinishReason",
    "SampleContext",
    "SamplingParams",
    "StopStringWatcher",
    "TokenLogprob",
    "can_stop",
    "check_vocabulary",
    "effective_seed",
    "finish",
    "log_softmax",
    "probabilities",
    "sample_token",
    "token_logprobs",
]
