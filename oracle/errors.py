"""Every error that `oracle` raises, as one tree.

- OracleError
  - MismatchError (AssertionError): a divergence beyond its tolerance
    - LogitsMismatch: logits further apart than their bound
    - TokenMismatch: another token, and no tie that explains it
    - ActivationMismatch: an activation further off than its bound
    - OutcomeMismatch: one side raised or ended, the other did not
      - NeverEnds: requests that go on without an end
    - TextMismatch: prompt ids or decoded text that differ
  - InvariantViolation (AssertionError): the subject's state is not sound
  - ReferenceUnavailable: the reference cannot be opened here
  - InsensitiveModelError: a checkpoint on which faults would not show
  - CheckFailed: a property that does not hold, or an error of the subject
  - FaultNotCaught: the harness did not see a planted bug
  - ScenarioError (ValueError): a scenario that cannot be run as it stands
  - DigestFileError (ValueError): a file that holds no digests of logits
  - WorkerDied: a process that checked cases ended before its time
  - EngineError: an engine that did not answer as the protocol demands
    - EngineRaised: it raised an error
    - EngineCrashed: its process ended
    - EngineHung: it did not answer in time
    - EngineProtocolError: it answered with something else
  - EngineUnavailable: an engine that is not installed here, or not known
"""


class OracleError(Exception):
    """Base of every error of the harness.

    Args:
        message: One sentence that shows what was found and what was allowed.
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


class MismatchError(OracleError, AssertionError):
    """A divergence beyond its tolerance; pytest shows it as a failure."""


class LogitsMismatch(MismatchError):
    """Logits further apart than their bound."""


class TokenMismatch(MismatchError):
    """Another token, and no tie that explains it."""


class ActivationMismatch(MismatchError):
    """An activation further off than its bound."""


class OutcomeMismatch(MismatchError):
    """One side raised or ended, the other did not."""


class NeverEnds(OutcomeMismatch):
    """Requests that go on without an end."""


class TextMismatch(MismatchError):
    """Prompt ids or decoded text that differ."""


class InvariantViolation(OracleError, AssertionError):
    """The subject's state is not sound."""


class ReferenceUnavailable(OracleError):
    """The reference cannot be opened here; becomes a skip with this reason."""


class InsensitiveModelError(OracleError):
    """A checkpoint on which faults would not show."""


class CheckFailed(OracleError):
    """A property that does not hold, or an error of the subject; what was raised is the cause."""


class FaultNotCaught(OracleError):
    """The harness did not see a planted bug."""


class ScenarioError(OracleError, ValueError):
    """A scenario that cannot be run as it stands."""


class DigestFileError(OracleError, ValueError):
    """A file that holds no digests of logits."""


class WorkerDied(OracleError):
    """A process that checked cases ended before its time."""


class EngineError(OracleError):
    """An engine that did not answer as the protocol demands; a verdict about the engine."""


class EngineRaised(EngineError):
    """It raised an error."""


class EngineCrashed(EngineError):
    """Its process ended."""


class EngineHung(EngineError):
    """It did not answer in time."""


class EngineProtocolError(EngineError):
    """It answered with something else."""


class EngineUnavailable(OracleError):
    """An engine that is not installed here, or not known."""
