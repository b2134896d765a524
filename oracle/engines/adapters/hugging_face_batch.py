"""transformers' continuous batching behind the protocol, which `generate_batch` is a wrapper of."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import transformers

from oracle.engines.adapters.hugging_face_batch_settings import (
    WITNESSES,
    declaration_of,
    manager_parameters,
    unknown_parameters,
)
from oracle.engines.adapters.hugging_face_generate import load_model, take_eos_token_ids
from oracle.engines.adapters.hugging_face_manager import SteppedManager
from oracle.engines.adapters.hugging_face_settings import stop_token_ids_of
from oracle.engines.declaration import EngineDeclaration
from oracle.engines.messages import EngineOutput, EngineRequest, EngineRun

MAX_MANAGERS = 4


class HuggingFaceBatchAdapter:
    """Continuous batching; requests that differ in what a manager fixes go to managers of their own, side by side.

    A manager fixes whether tokens are drawn, `n`, `min_p`, biases, and whether it gives log-probabilities. Managers are
    kept between runs, with the blocks that they share; after an error all are made anew.
    """

    def __init__(self) -> None:
        self._model: Any = None
        self._eos_token_ids: list[int] = []
        self._knobs: dict[str, Any] = {}
        self._manager_by_key: dict[str, SteppedManager] = {}

    def declare(self) -> EngineDeclaration:
        """See `EngineAdapter.declare`."""
        return declaration_of(transformers.__version__)

    def open(self, folder: str, knobs: dict[str, Any]) -> None:
        """See `EngineAdapter.open`."""
        self.close()
        self._model = load_model(folder, knobs["attn_implementation"])
        self._eos_token_ids = take_eos_token_ids(self._model)
        self._knobs = knobs

    def close(self) -> None:
        """See `EngineAdapter.close`."""
        self._manager_by_key = {}
        self._model = None

    def run(self, requests: Sequence[EngineRequest]) -> EngineRun:
        """See `EngineAdapter.run`; all managers take their steps at the same time.

        Raises:
            RuntimeError: Nothing is open, or requests wait and no step runs any of them.
        """
        if self._model is None:
            message = "no model is open"
            raise RuntimeError(message)
        witnesses: Counter[str] = Counter(dict.fromkeys(WITNESSES, 0))
        managers, self._manager_by_key = self._manager_by_key, {}
        outputs, managers = self._run(requests, managers, witnesses)
        # Only after a run without an error: what is left of a manager that raised is not used again.
        self._manager_by_key = dict(list(managers.items())[-MAX_MANAGERS:])
        return EngineRun(tuple(outputs), dict(witnesses))

    def _run(
        self, requests: Sequence[EngineRequest], managers: dict[str, SteppedManager], witnesses: Counter[str]
    ) -> tuple[list[EngineOutput], dict[str, SteppedManager]]:
        refusals: dict[str, str] = {}
        manager_by_id: dict[str, SteppedManager] = {}
        for manager in managers.values():
            manager.begin()
            manager.witnesses = witnesses
        for request in requests:
            unknown = unknown_parameters(request.parameters)
            if unknown:
                refusals[request.request_id] = (
                    f"a manager drops {', '.join(unknown)} with a warning, or has no such thing"
                )
                continue
            try:
                manager_by_id[request.request_id] = self._manager_of(request, managers, witnesses)
            except ValueError as error:
                refusals[request.request_id] = str(error)
        used = list(dict.fromkeys(manager_by_id.values()))
        waiting = sorted(
            (request for request in requests if request.request_id in manager_by_id), key=lambda own: own.arrival
        )
        while waiting or any(manager.is_busy for manager in used):
            while waiting and waiting[0].arrival <= witnesses["steps"]:
                request = waiting.pop(0)
                stop_token_ids = stop_token_ids_of(request.parameters, self._eos_token_ids)
                manager_by_id[request.request_id].add(request, stop_token_ids)
            for manager in used:
                manager.step()
            witnesses["steps"] += 1
        witnesses["held_blocks"] = sum(manager.num_held_blocks for manager in used)
        outputs = [
            EngineOutput(name, refused=refusals[name]) if name in refusals else manager_by_id[name].output(name)
            for name in (request.request_id for request in requests)
        ]
        return outputs, managers

    def _manager_of(
        self, request: EngineRequest, managers: dict[str, SteppedManager], witnesses: Counter[str]
    ) -> SteppedManager:
        """Gives the manager that a request belongs to, which is made the first time; the last used stands last."""
        fixed = manager_parameters(request.parameters)
        key = json.dumps(fixed, sort_keys=True)
        manager = managers.pop(key, None)
        if manager is None:
            manager = SteppedManager(self._model, self._knobs, fixed, witnesses)
        managers[key] = manager
        return manager
