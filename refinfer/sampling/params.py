"""What a caller may say about one request, checked when it is built."""

from dataclasses import dataclass

from refinfer.errors import SamplingParamsError


@dataclass(frozen=True)
class SamplingParams:
    """Sampling parameters of one request.

    Attributes:
        temperature: 0 takes the likeliest token, the lowest id among equals; other values are not implemented yet.
        max_tokens: Most output tokens; None goes on to `max_model_len`.
        ignore_eos: Emit end-of-sequence tokens like any other and go on.

    Raises:
        SamplingParamsError: A value is out of range or not implemented yet.
    """

    temperature: float = 0.0
    max_tokens: int | None = 16
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        if self.temperature != 0.0:
            message = f"temperature {self.temperature!r} is not implemented yet; pass temperature=0.0 for greedy"
            raise SamplingParamsError(message, temperature=self.temperature)
        max_tokens = self.max_tokens
        if max_tokens is not None and (
            isinstance(max_tokens, bool) or not isinstance(max_tokens, int) or max_tokens < 1
        ):
            message = f"max_tokens is {max_tokens!r}; it must be a whole number of at least 1, or None"
            raise SamplingParamsError(message, max_tokens=max_tokens)
        if not isinstance(self.ignore_eos, bool):
            message = f"ignore_eos is {self.ignore_eos!r}; it must be True or False"
            raise SamplingParamsError(message, ignore_eos=self.ignore_eos)
