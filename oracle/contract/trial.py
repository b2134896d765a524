"""Runs one scenario on an open engine in each way that is compared: together, again, reversed, one by one."""

from dataclasses import dataclass, field, replace

from oracle.contract.referee import Referee
from oracle.contract.scenario import EngineScenario
from oracle.engines.adapter import EngineAdapter
from oracle.engines.declaration import EngineDeclaration
from oracle.engines.messages import EngineOutput, EngineRequest, EngineRun


@dataclass(frozen=True)
class Trial:
    """Everything that an engine gave for one scenario.

    Attributes:
        scenario: What ran.
        declaration: What the engine says of itself.
        referee: What tokens are judged by; None where nothing can.
        eos_token_ids: What ends a request of the checkpoint.
        vocab_size: Number of token ids; None where it is not known.
        together: All requests in one run.
        again: The same run once more.
        reversed: The same requests in reverse order; None for an engine that runs one at a time.
        alone: Requests that are not aborted, each in a run of its own, by request id.
    """

    scenario: EngineScenario
    declaration: EngineDeclaration
    referee: Referee | None
    eos_token_ids: tuple[int, ...]
    vocab_size: int | None
    together: EngineRun
    again: EngineRun
    reversed: EngineRun | None = None
    alone: dict[str, EngineRun] = field(default_factory=dict)

    def request(self, request_id: str) -> EngineRequest:
        """Gives a request by its name."""
        return next(request for request in self.scenario.requests if request.request_id == request_id)

    def runs(self) -> list[tuple[str, tuple[EngineRequest, ...], EngineRun]]:
        """Gives each run by name, with the requests that it was given."""
        requests = self.scenario.requests
        runs = [("together", requests, self.together), ("again", requests, self.again)]
        if self.reversed is not None:
            runs.append(("reversed", requests[::-1], self.reversed))
        return runs + [
            (f"{request_id} alone", (as_alone(self.request(request_id)),), run)
            for request_id, run in self.alone.items()
        ]


def as_alone(request: EngineRequest) -> EngineRequest:
    """Gives a request as it is run by itself."""
    return replace(request, arrival=0, abort_after=None)


def run_trial(
    engine: EngineAdapter,
    scenario: EngineScenario,
    declaration: EngineDeclaration,
    referee: Referee | None,
    *,
    eos_token_ids: tuple[int, ...],
    vocab_size: int | None,
) -> Trial:
    """Runs a scenario on an engine that is open with its model and settings, warm-up runs included.

    Raises:
        EngineError: The engine raised, crashed, hung, or answered with something else.
    """
    for requests in scenario.before:
        engine.run(requests)
    requests = scenario.requests
    together = engine.run(requests)
    again = engine.run(requests)
    is_batching = "batching" in declaration.capabilities and len(requests) > 1
    backwards = engine.run(requests[::-1]) if is_batching else None
    alone = {
        request.request_id: engine.run([as_alone(request)])
        for request in requests
        if request.abort_after is None and is_batching
    }
    return Trial(scenario, declaration, referee, eos_token_ids, vocab_size, together, again, backwards, alone)


def output_of(run: EngineRun, request_id: str) -> EngineOutput | None:
    """Gives the only output of a request; None where there is none, or several."""
    outputs = [output for output in run.outputs if output.request_id == request_id]
    return outputs[0] if len(outputs) == 1 else None
