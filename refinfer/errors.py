"""Every error that `refinfer` raises, as one tree.

The families answer the one question a caller has, namely whose move it is:
my settings, my file, my request, try later, my tensors, or a bug of ours.

- RefinferError
  - ConfigError (ValueError): settings that cannot work
    - UnsupportedModelError: an architecture, RoPE type, activation or feature that is not implemented
    - SamplingParamsError: a sampling parameter out of range, or a pair that excludes each other
  - CheckpointError: a checkpoint folder that cannot be loaded as it stands
    - MissingWeightError: a weight that the configuration asks for is in no file
    - UnexpectedWeightError: a file holds a weight that the configuration has no place for
    - WeightShapeError: a weight has another shape than the configuration gives it
  - RequestError (ValueError): this request can never run
    - EmptyPromptError: a prompt without a token
    - PromptTooLongError: a prompt that leaves no room for one output token
    - TokenIdError: a token id outside the vocabulary
    - DuplicateRequestError: a request id that an unfinished request has
    - UnknownRequestError: a request id that no unfinished request has
    - NoTokenLeftError: sampling parameters that leave no token to choose
  - CapacityError (RuntimeError): not now, perhaps later
    - OutOfBlocksError: fewer free blocks than were asked for
  - NumericsError (RuntimeError): an operation whose bits depend on what runs beside a row
  - ShapeError (ValueError): tensors that do not fit together, at a public boundary
  - InvariantError (RuntimeError): a bug of ours
    - StatusTransitionError: a move that a request's status may not make
    - BlockAccountingError: references to a block that do not add up
"""


class RefinferError(Exception):
    """Base of every error of this package.

    Args:
        message: One sentence with the offending value, the limit and the way out.
        values: The values the sentence shows; each can be read as an attribute.
    """

    def __init__(self, message: str, **values: object) -> None:
        super().__init__(message)
        self.values = values

    def __getattr__(self, name: str) -> object:
        """Gives one of the values that the message shows."""
        values = self.__dict__.get("values", {})
        if name in values:
            return values[name]
        message = f"{type(self).__name__} has no value named {name!r}"
        raise AttributeError(message)


class ConfigError(RefinferError, ValueError):
    """Settings that cannot work."""


class UnsupportedModelError(ConfigError):
    """An architecture, RoPE type, activation or feature that is not implemented."""


class SamplingParamsError(ConfigError):
    """A sampling parameter out of range, or a pair that excludes each other."""


class CheckpointError(RefinferError):
    """A checkpoint folder that cannot be loaded as it stands."""


class MissingWeightError(CheckpointError):
    """A weight that the configuration asks for is in no file."""


class UnexpectedWeightError(CheckpointError):
    """A file holds a weight that the configuration has no place for."""


class WeightShapeError(CheckpointError):
    """A weight has another shape than the configuration gives it."""


class RequestError(RefinferError, ValueError):
    """This request can never run."""


class EmptyPromptError(RequestError):
    """A prompt without a token."""


class PromptTooLongError(RequestError):
    """A prompt that leaves no room for one output token."""


class TokenIdError(RequestError):
    """A token id outside the vocabulary."""


class DuplicateRequestError(RequestError):
    """A request id that an unfinished request has."""


class UnknownRequestError(RequestError):
    """A request id that no unfinished request has."""


class NoTokenLeftError(RequestError):
    """Sampling parameters that leave no token to choose."""


class CapacityError(RefinferError, RuntimeError):
    """Not now, perhaps later."""


class OutOfBlocksError(CapacityError):
    """Fewer free blocks than were asked for."""


class NumericsError(RefinferError, RuntimeError):
    """An operation whose bits depend on what runs beside a row, where that was not to be."""


class ShapeError(RefinferError, ValueError):
    """Tensors that do not fit together, at a public boundary."""


class InvariantError(RefinferError, RuntimeError):
    """A bug of ours."""


class StatusTransitionError(InvariantError):
    """A move that a request's status may not make."""


class BlockAccountingError(InvariantError):
    """References to a block that do not add up: a double free, a leak, a block that nobody holds."""
