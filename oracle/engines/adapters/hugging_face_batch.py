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

    A manager fixes whether tokens are drawn, how many answers a request has, and whether log-probabilities come.
    Managers are kept between runs, with the blocks that they share; after an error all are made anew.
    """

    def __init__(self) -> None:
        self._model: Any = None
        self._eos_token_ids: list[int] = []
        self._knobs: dict[str, Any] = {}
        self._manager_by_key: dict[str, SteppedManager] = {}
        self._managers: dict[str, SteppedManager] = {}
        self._witnesses: Counter[str] = Counter()

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
        # Taken away for the run: what is left of managers of which one raised is not used again.
        self._managers, self._manager_by_key = self._manager_by_key, {}
        self._witnesses = Counter(dict.fromkeys(WITNESSES, 0))
        for manager in self._managers.values():
            manager.begin(self._witnesses)
        refusals = {request.request_id: _refusal_of(request) for request in requests}
        taken = [request for request in requests if refusals[request.request_id] is None]
        manager_by_id = self._choose_managers(taken)
        self._run(taken, manager_by_id)
        self._manager_by_key = dict(list(self._managers.items())[-MAX_MANAGERS:])
        outputs = (
            manager_by_id[name].output(name) if name in manager_by_id else EngineOutput(name, refused=refused)
            for name, refused in refusals.items()
        )
        return EngineRun(tuple(outputs), dict(self._witnesses))

    def _choose_managers(self, requests: Sequence[EngineRequest]) -> dict[str, SteppedManager]:
        """Gives the manager that each request belongs to; all give log-probabilities if one of the requests asks."""
        is_asked = any(request.parameters.get("logprobs") is not None for request in requests)
        chosen = {}
        for request in requests:
            fixed = manager_parameters(request.parameters, return_logprobs=is_asked)
            key = json.dumps(fixed, sort_keys=True)
            manager = self._managers.pop(key, None)
            if manager is None:
                manager = SteppedManager(self._model, self._knobs, fixed)
                manager.begin(self._witnesses)
            self._managers[key] = manager  # the last used stands last
            chosen[request.request_id] = manager
        return chosen

    def _run(self, requests: Sequence[EngineRequest], manager_by_id: dict[str, SteppedManager]) -> None:
        used = list(dict.fromkeys(manager_by_id.values()))
        waiting = sorted(requests, key=lambda request: request.arrival)
        while waiting or any(manager.is_busy for manager in used):
            while waiting and waiting[0].arrival <= self._witnesses["steps"]:
                request = waiting.pop(0)
                stop_token_ids = stop_token_ids_of(request.parameters, self._eos_token_ids)
                manager_by_id[request.request_id].add(request, stop_token_ids)
            for manager in used:
                manager.step()
            self._witnesses["steps"] += 1
        self._witnesses["held_blocks"] = sum(manager.num_held_blocks for manager in used)


def _refusal_of(request: EngineRequest) -> str | None:
    unknown = unknown_parameters(request.parameters)
    return f"a request of a manager has no {', '.join(unknown)}" if unknown else None
