"""What an adapter has to be: four methods between an engine and the harness."""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from oracle.engines.declaration import EngineDeclaration
from oracle.engines.messages import EngineRequest, EngineRun


class Refused(ValueError):
    """Raised by an adapter where the engine does not take a model or a knob, with the engine's own words."""


@runtime_checkable
class EngineAdapter(Protocol):
    """One engine behind four methods; what an adapter raises is a verdict about the engine, not the end of a run."""

    def declare(self) -> EngineDeclaration:
        """Says what the engine claims, takes and shows; asked once, before anything is opened."""
        ...

    def open(self, folder: str, knobs: dict[str, Any]) -> None:
        """Opens a checkpoint folder with settings; what was open before is closed.

        Args:
            folder: A Hugging Face checkpoint folder.
            knobs: One value for each knob that was declared.

        Raises:
            Refused: The engine does not take them.
        """
        ...

    def run(self, requests: Sequence[EngineRequest]) -> EngineRun:
        """Runs requests together, and gives one output for each, in their order.

        A request that the engine does not take gives an output that says so in `refused`.
        State that the engine keeps between runs, such as cached prefixes, is kept.
        """
        ...

    def close(self) -> None:
        """Lets go of what is open."""
        ...
