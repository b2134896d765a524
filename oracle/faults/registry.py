"""A planted fault: a bug that engines shipped, with a switch that puts it into `refinfer`."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, Unpack
from unittest import mock

from torch import Tensor

from oracle.faults.facts import Facts, Need, Sight
from refinfer.attention_layout import AttentionLayout
from refinfer.interfaces import AttentionFunction
from refinfer.model import checkpoint
from refinfer.numerics import InvariantNumerics, PlainNumerics

MANNERS = (PlainNumerics, InvariantNumerics)
"""Both manners of numerics; a fault of what the second overrides is planted in both."""


class Area(StrEnum):
    """The part of `refinfer` that a fault breaks."""

    MODEL = "model"
    POSITIONS = "positions"
    MASKS = "masks"
    CACHES = "caches"
    LOADER = "loader"
    SAMPLING = "sampling"
    TEXT = "text"
    NUMERICS = "numerics"
    BLOCKS = "blocks"
    PREFIXES = "prefixes"
    SCHEDULER = "scheduler"
    PREEMPTION = "preemption"
    PAGED = "paged"
    STOPPING = "stopping"
    STREAMING = "streaming"
    ABORT = "abort"
    SPECULATIVE = "speculative"
    DRAFTING = "drafting"
    LAW = "law"


@dataclass(frozen=True)
class Replacement:
    """One attribute that a fault replaces.

    Attributes:
        owner: The class or module.
        attribute: Its attribute.
        value: What stands there while the fault is planted.
    """

    owner: Any
    attribute: str
    value: Any


@dataclass(frozen=True)
class Fault:
    """A bug with a switch.

    Attributes:
        name: The switch.
        area: What it breaks.
        bug: What is wrong, in one sentence.
        replacements: What the switch replaces.
        keeps_self_check: Whether the invariant manner is still tried when a model is loaded.
        models: The public issues that it models; None where it is our own invention. For this and what follows see
            `Facts`.
        component: Where it sits, as files under `refinfer`.
        needs: The features that it needs, two or more of them at once.
        seen_by: The ways of looking that should see it.
    """

    name: str
    area: Area
    bug: str
    replacements: tuple[Replacement, ...]
    keeps_self_check: bool = False
    models: tuple[str, ...] | None = None
    component: tuple[str, ...] = ()
    needs: tuple[Need, ...] = ()
    seen_by: tuple[Sight, ...] = ()

    @property
    def sources(self) -> tuple[str, ...]:
        """The files that a right answer may name, from the repository's root."""
        return tuple(f"refinfer/{name}" for name in self.component)

    @contextmanager
    def planted(self) -> Iterator[None]:
        """Plants the fault, and pulls it out again however the block ends.

        The self-check at load is left out unless the fault is for it: it would refuse many a fault before
        a property has seen anything.
        """
        with ExitStack() as stack:
            if not self.keeps_self_check:
                stack.enter_context(mock.patch.object(checkpoint, "check_operations", return_value=None))
            for replacement in self.replacements:
                patch: AbstractContextManager[Any] = mock.patch.object(
                    replacement.owner, replacement.attribute, replacement.value
                )
                stack.enter_context(patch)
            yield


AttentionChange = Callable[[AttentionFunction, Tensor, Tensor, Tensor, AttentionLayout], Tensor]
"""Calls the attention that it is given, with something wrong."""


def attention_fault(name: str, area: Area, bug: str, **facts: Unpack[Facts]) -> Callable[[AttentionChange], Fault]:
    """Makes a fault of the function below it, which stands before attention in both manners of numerics.

    Args:
        name: The switch.
        area: What it breaks.
        bug: What is wrong, in one sentence.
        facts: What else is known of it.
    """

    def make(change: AttentionChange) -> Fault:
        return Fault(name, area, bug, tuple(_attention_replacement(owner, change) for owner in MANNERS), **facts)

    return make


def _attention_replacement(owner: type[PlainNumerics], change: AttentionChange) -> Replacement:
    original = owner.attention

    def attention(
        self: PlainNumerics, queries: Tensor, keys: Tensor, values: Tensor, layout: AttentionLayout
    ) -> Tensor:
        return change(partial(original, self), queries, keys, values, layout)

    return Replacement(owner, "attention", attention)


def one_replacement(
    name: str, area: Area, bug: str, owner: Any, attribute: str, **facts: Unpack[Facts]
) -> Callable[[Callable[..., Any]], Fault]:
    """Makes a fault of the function below it, which takes the place of one method.

    Args:
        name: The switch.
        area: What it breaks.
        bug: What is wrong, in one sentence.
        owner: The class or module whose attribute is replaced.
        attribute: The attribute.
        facts: What else is known of it.
    """

    def make(function: Callable[..., Any]) -> Fault:
        return Fault(name, area, bug, (Replacement(owner, attribute, function),), **facts)

    return make


def no_op(
    name: str, area: Area, reason: str, owner: Any, attribute: str, *needs: Need
) -> Callable[[Callable[..., Any]], Fault]:
    """Makes a fault that is none of the function below it, which does what the method it takes the place of does.

    Args:
        name: The switch.
        area: Where it stands.
        reason: Why nothing may be seen of it, in one sentence.
        owner: The class or module whose attribute is replaced.
        attribute: The attribute.
        needs: The features without which the function never runs.
    """

    def make(function: Callable[..., Any]) -> Fault:
        return Fault(name, area, reason, (Replacement(owner, attribute, function),), needs=needs)

    return make
