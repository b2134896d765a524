"""The function that scripts and notebooks call: one engine, one report."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from oracle.contract.dock import Dock
from oracle.contract.known import load_known
from oracle.contract.outcome import EngineReport
from oracle.contract.settings import DockSettings
from oracle.engines.adapter import EngineAdapter


def check_engine(
    engine: EngineAdapter,
    *,
    model: str | Path | None = None,
    known: str | Path | None = None,
    on_progress: Callable[[float, str], None] = lambda _share, _words: None,
    **options: Any,
) -> EngineReport:
    """Holds an engine to the contract that it declares.

    Args:
        engine: An adapter, in this process or around another one.
        model: A checkpoint folder; generated ones unless given.
        known: A file of known deviations.
        on_progress: Called with the share that is done, from 0 to 1, and what comes next.
        **options: Further fields of `DockSettings`: profile, seed, families, knobs, parameters and others.

    Returns:
        What was seen; `report.verdict` is the worst of all checks.

    Raises:
        EngineError: The engine does not declare itself.
        ScenarioError: The file of known deviations holds something else.
        OracleError: `knobs` or `parameters` names what the engine does not have.
        TypeError: There is no such option.
    """
    settings = DockSettings(
        folder=None if model is None else Path(model),
        known=() if known is None else load_known(Path(known)),
        **options,
    )
    return Dock(engine, settings, on_progress).run()
