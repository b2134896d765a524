"""Who makes the choices of a strategy: Hypothesis, which shrinks them, or a seeded generator, which is fast."""

import random
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Protocol, TypeVar, runtime_checkable

from hypothesis import strategies as st

Value = TypeVar("Value")


@runtime_checkable
class Chooser(Protocol):
    """Makes choices."""

    def one_of(self, options: Sequence[Value]) -> Value:
        """Chooses one of some options, of which the first is the simplest."""
        ...

    def items(self, most: int, *, least: int = 0) -> Iterator[int]:
        """Counts as many items as are wanted; the fewest are the simplest."""
        ...

    def token_ids(self, alphabet: int, most: int) -> tuple[int, ...]:
        """Chooses a prompt of token ids below a number; one token 0 is the simplest."""
        ...

    def aside(self) -> "Chooser":
        """Gives who makes choices that move none of the others, for what changes much of what was chosen at once."""
        ...


_ASIDE = 2**32
"""What is added to a seed for choices aside; nobody counts seeds up to there."""

_GOES_ON = (False, True, True)


class HypothesisChooser:
    """Lets Hypothesis choose.

    Args:
        draw: Gives a value of a strategy.
    """

    def __init__(self, draw: Callable[..., Any]) -> None:
        self._draw = draw

    def one_of(self, options: Sequence[Value]) -> Value:
        """Chooses one of some options."""
        value: Value = options[self._draw(_places(len(options)))]
        return value

    def items(self, most: int, *, least: int = 0) -> Iterator[int]:
        """Counts items; each has a choice of its own before it, so that any of them can be left out."""
        for index in range(most):
            if index >= least and not self.one_of(_GOES_ON):
                return
            yield index

    def token_ids(self, alphabet: int, most: int) -> tuple[int, ...]:
        """Chooses a prompt, all of it at once."""
        return tuple(token_id % alphabet for token_id in self._draw(_prompts(most)))

    def aside(self) -> Chooser:
        """Always takes the simplest: what changes much at once, shrinking could not take back."""
        return SimplestChooser()


class SimplestChooser:
    """Always takes the simplest."""

    def one_of(self, options: Sequence[Value]) -> Value:
        """Takes the first option."""
        return options[0]

    def items(self, most: int, *, least: int = 0) -> Iterator[int]:  # noqa: ARG002 - the protocol's
        """Counts as few as may be."""
        return iter(range(least))

    def token_ids(self, alphabet: int, most: int) -> tuple[int, ...]:  # noqa: ARG002 - the protocol's
        """Takes token 0."""
        return (0,)

    def aside(self) -> Chooser:
        """Takes the simplest there as well."""
        return self


class RandomChooser:
    """Lets a seeded generator choose, tens of times as fast; what fails is shrunk by `oracle.schedule_shrinker`.

    Args:
        seed: The same seed makes the same choices.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._aside: RandomChooser | None = None
        self._random = random.Random(seed)

    def one_of(self, options: Sequence[Value]) -> Value:
        """Chooses one of some options."""
        return options[int(self._random.random() * len(options))]

    def items(self, most: int, *, least: int = 0) -> Iterator[int]:
        """Counts items, every number of them as likely as the others."""
        return iter(range(least + int(self._random.random() * (most - least + 1))))

    def token_ids(self, alphabet: int, most: int) -> tuple[int, ...]:
        """Chooses a prompt, every length as likely as the others."""
        num_tokens = 1 + int(self._random.random() * most)
        return tuple(token_id % alphabet for token_id in self._random.randbytes(num_tokens))

    def aside(self) -> Chooser:
        """Chooses with a generator of its own, the same one each time."""
        if self._aside is None:
            self._aside = RandomChooser(self._seed + _ASIDE)
        return self._aside


@lru_cache(maxsize=64)
def _places(number: int) -> st.SearchStrategy[int]:
    return st.integers(0, number - 1)


@lru_cache(maxsize=64)
def _prompts(most: int) -> st.SearchStrategy[bytes]:
    return st.binary(min_size=1, max_size=most)
