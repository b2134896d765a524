"""What a caller may say about one request, checked when it is built."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property

from refinfer.config.plain_values import as_plain, meant
from refinfer.errors import SamplingParamsError
from refinfer.sampling.parameter_checks import (
    COUNTS,
    NUMBERS,
    check_count,
    check_seed,
    check_top_k,
    frozen_bias,
    listed_stop_strings,
    number_within,
    whole_token_ids,
)


@dataclass(frozen=True)
class SamplingParams:
    """Sampling parameters of one request.

    What is stored is one form of each: numbers as floats, `stop` and `stop_token_ids` as tuples, -1 and 0 of
    `top_k` as 0, an empty `logit_bias` as None, numbers of NumPy and torch as Python's. So equal meanings compare
    equal, and all can be hashed.

    Attributes:
        n: Answers to give.
        temperature: 0 takes the likeliest token, the lowest id among equals. The default is 0; vLLM's is 1.0.
            Every value above 0 draws, also those near 0 that vLLM rounds to 0 or to 0.01.
        top_k: Draw among this many likeliest tokens, the lowest ids among equals at the border; 0 or -1 takes all.
        top_p: Draw among the fewest likeliest tokens whose probabilities add up to this; 1 takes all.
        min_p: Draw among tokens at least this often as likely as the likeliest; 0 takes all.
        repetition_penalty: Divides positive logits of tokens in prompt or output, and multiplies negative ones.
        presence_penalty: Taken from the logit of each token in the output, once.
        frequency_penalty: Taken from the logit of each token in the output, as often as it stands there.
        logit_bias: Added to the logits, by token id.
        logprobs: Give log-probabilities of each output token and of this many likeliest ones; None gives none.
        prompt_logprobs: The same for prompt tokens.
        seed: What randomness comes from, 0 to 2**64 - 1; None takes a fresh one.
        stop: Strings that end the text before them.
        stop_token_ids: Tokens that end the request and stay in the output.
        min_tokens: Output tokens before anything but a length limit may end the request; until they are out,
            end-of-sequence and stop tokens are masked, with `ignore_eos` too.
        ignore_eos: Emit end-of-sequence tokens like any other and go on.
        max_tokens: Most output tokens; None goes on to `max_model_len`.

    Raises:
        SamplingParamsError: A value has the wrong type or is out of range, or `min_tokens` exceeds `max_tokens`.
    """

    temperature: float = 0.0
    max_tokens: int | None = 16
    ignore_eos: bool = False
    n: int = 1
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] | None = None
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    seed: int | None = None
    stop: str | Sequence[str] | None = None
    stop_token_ids: Sequence[int] | None = None
    min_tokens: int = 0

    def __new__(cls, *_: object, **named: object) -> "SamplingParams":  # noqa: PYI034 - beartype knows no Self here
        """Refuse a parameter that nobody knows by name, before Python refuses it in its own words."""
        known = [field.name for field in fields(cls)]
        for name, value in named.items():
            if name not in known:
                message = f"{name}={value!r} is no sampling parameter; {meant(name, known)}there are {', '.join(known)}"
                raise SamplingParamsError(message, **{name: value})
        return super().__new__(cls)

    def __post_init__(self) -> None:
        for field in fields(self):
            self._store(field.name, as_plain(getattr(self, field.name)))
        for name, (words, is_within) in NUMBERS.items():
            self._store(name, number_within(name, getattr(self, name), f"a finite number {words}", is_within))
        for name, (least, is_optional) in COUNTS.items():
            check_count(name, getattr(self, name), least, is_optional=is_optional)
        check_top_k(self.top_k)
        self._store("top_k", max(self.top_k, 0))
        check_seed(self.seed)
        if not isinstance(self.ignore_eos, bool):
            message = f"ignore_eos is {self.ignore_eos!r}; it must be True or False"
            raise SamplingParamsError(message, ignore_eos=self.ignore_eos)
        self._store("logit_bias", frozen_bias(self.logit_bias))
        self._store("stop", listed_stop_strings(self.stop))
        self._store("stop_token_ids", whole_token_ids("stop_token_ids", self.stop_token_ids))
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            message = f"min_tokens is {self.min_tokens}, more than max_tokens, which is {self.max_tokens}; lower it"
            raise SamplingParamsError(message, min_tokens=self.min_tokens, max_tokens=self.max_tokens)

    def _store(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    @property
    def is_greedy(self) -> bool:
        """Whether the likeliest token is taken, so that nothing is drawn."""
        return self.temperature == 0.0

    @cached_property
    def changes_logits(self) -> bool:
        """Whether logits are changed before the likeliest is looked for or temperature applied."""
        return (
            self.logit_bias is not None
            or self.repetition_penalty != 1.0
            or self.presence_penalty != 0.0
            or self.frequency_penalty != 0.0
            or self.min_tokens > 0
        )

    @cached_property
    def is_plain_greedy(self) -> bool:
        """Whether the token is the argmax of the logits as the model gives them."""
        return self.is_greedy and not self.changes_logits

    @cached_property
    def stop_strings(self) -> tuple[str, ...]:
        """The strings of `stop`."""
        return tuple(self.stop or ())

    @cached_property
    def stop_token_id_set(self) -> frozenset[int]:
        """The ids of `stop_token_ids`, to look one up."""
        return frozenset(self.stop_token_ids or ())


def check_vocabulary(params: SamplingParams, vocab_size: int, eos_token_ids: frozenset[int] = frozenset()) -> None:
    """Refuses parameters that do not fit a vocabulary.

    A `top_k`, `logprobs` or `prompt_logprobs` above the size of the vocabulary means all of it.

    Args:
        params: The request's parameters.
        vocab_size: Logits in a row.
        eos_token_ids: End-of-sequence ids of the model, which `min_tokens` masks too.

    Raises:
        SamplingParamsError: An id lies outside the vocabulary, or `min_tokens` masks every token.
    """
    for name, token_ids in (("logit_bias", params.logit_bias or ()), ("stop_token_ids", params.stop_token_ids or ())):
        outside = [token_id for token_id in token_ids if token_id >= vocab_size]
        if outside:
            message = f"{name} holds {outside[0]}, but the token ids of this model end at {vocab_size - 1}"
            raise SamplingParamsError(message, name=name, token_id=outside[0], vocab_size=vocab_size)
    if params.min_tokens and (params.stop_token_id_set | eos_token_ids).issuperset(range(vocab_size)):
        message = (
            f"min_tokens is {params.min_tokens}, but every one of the {vocab_size} tokens of this model ends the "
            f"request; shorten stop_token_ids, or leave min_tokens at 0"
        )
        raise SamplingParamsError(message, min_tokens=params.min_tokens, vocab_size=vocab_size)
