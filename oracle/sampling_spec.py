"""How one request of a scenario samples: its own parameters, as plain data."""

from dataclasses import dataclass, fields

from refinfer.sampling import SamplingParams


@dataclass(frozen=True)
class SamplingSpec:
    """Sampling parameters of one request; the defaults are those of greedy choice, and change nothing.

    The names and meanings are those of `SamplingParams`; lengths and `ignore_eos` stand in the request itself.

    Attributes:
        n: Answers to give.
        temperature: 0 for greedy choice.
        top_k: Draw among so many likeliest tokens; 0 for all.
        top_p: Draw among the likeliest tokens that have so much probability together.
        min_p: Draw among tokens at least so often as likely as the likeliest.
        repetition_penalty: Divides and multiplies logits of tokens that were there.
        presence_penalty: Taken once from the logits of output tokens.
        frequency_penalty: Taken as often as they stand there.
        logit_bias: Pairs of token id and what is added to its logit.
        logprobs: How many likeliest log-probabilities are wanted beside each token's; None for none at all.
        prompt_logprobs: The same for the prompt.
        seed: What randomness comes from; None for none of the request's own.
        stop: Strings that end the text.
        stop_token_ids: Tokens that end the request.
        min_tokens: Output tokens before it may end by itself.
    """

    n: int = 1
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    min_tokens: int = 0

    @property
    def named(self) -> tuple[str, ...]:
        """The parameters that are not at their defaults."""
        return tuple(field.name for field in fields(self) if getattr(self, field.name) != field.default)

    def params(self, max_tokens: int, *, ignore_eos: bool) -> SamplingParams:
        """Builds the parameters that an engine takes.

        Raises:
            SamplingParamsError: A value is out of range, or of another type.
        """
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return SamplingParams(
            max_tokens=max_tokens, ignore_eos=ignore_eos, **{**values, "logit_bias": dict(self.logit_bias)}
        )
