"""Runs a model pass by pass, and says of each activation which request and position it belongs to."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from oracle.activations import Activation, ActivationCollector, canonical_names, name_refinfer_records
from oracle.errors import ActivationMismatch
from refinfer.cache import CausalAttentionView, ContinuousCache
from refinfer.engine import LLM
from refinfer.engine.core import EngineCore
from refinfer.engine.model_runner import ModelRunner, RecomputeRunner
from refinfer.model import Llama
from refinfer.model.model_input import RowLogits
from refinfer.scheduler import BlockOperation, Request, RequestState, ScheduledRow
from refinfer.shapes import Logits

INPUT_IDS = "input_ids"
POSITION_IDS = "position_ids"
STEP_LOGITS = "step_logits"

_INPUT_PATH_BY_NAME = {INPUT_IDS: "model", POSITION_IDS: "model.rotary_emb"}
"""Modules whose first input is what the pass was told of its tokens."""


def names_in_pass(num_layers: int) -> tuple[str, ...]:
    """Gives the names of what a pass shows, in the order of execution.

    Besides the canonical names of activations: the token ids and position ids that the pass was given,
    and the logits that were handed to each request when it was over.
    """
    return (INPUT_IDS, POSITION_IDS, *canonical_names(num_layers), STEP_LOGITS)


@dataclass(frozen=True)
class Part:
    """The tokens of one request in one pass.

    Attributes:
        request_index: Whose they are.
        positions: Their places in the request, as the request counts them; the pass may have been told others.
        activations: What each name of `names_in_pass` gave for them. Logits may have been computed for
            the last of the positions only.
    """

    request_index: int
    positions: range
    activations: dict[str, Activation]


@dataclass(frozen=True)
class _Row:
    """What a request has to run in a pass, and of how many tokens it wants logits; of some rows nobody reads any."""

    request_index: int | None
    positions: range
    num_logits: int = 1


def alone_passes(model: Llama, token_ids_by_request: Sequence[Sequence[int]]) -> Iterator[list[Part]]:
    """Runs each request by itself, whole, without a cache: one pass for each."""
    for index, token_ids in enumerate(token_ids_by_request):
        view = CausalAttentionView([len(token_ids)])
        with _collecting(model) as collector:
            logits = model.forward(torch.tensor(token_ids), torch.arange(len(token_ids)), view)
        yield _parts([_Row(index, range(len(token_ids)), len(token_ids))], collector.records, [logits], model)


def chunked_passes(
    model: Llama, prompts: Sequence[Sequence[int]], cuts: Sequence[Sequence[int]]
) -> Iterator[list[Part]]:
    """Prefills prompts in chunks over caches of their own: the first chunks together, then the second ones.

    Args:
        model: The model.
        prompts: What runs.
        cuts: Where each prompt is cut, ascending.
    """
    caches = [ContinuousCache(model.config, model.dtype) for _ in prompts]
    bounds = [[0, *own, len(prompt)] for prompt, own in zip(prompts, cuts, strict=True)]
    for step in range(max(map(len, bounds)) - 1):
        rows = {i: range(own[step], own[step + 1]) for i, own in enumerate(bounds) if step + 1 < len(own)}
        chunks = [list(prompts[index][positions.start : positions.stop]) for index, positions in rows.items()]
        with _collecting(model) as collector:
            logits = model.prefill(chunks, [caches[index] for index in rows])
        yield _parts(
            [_Row(index, positions) for index, positions in rows.items()],
            collector.records,
            list(torch.split(logits, 1)),
            model,
        )


def engine_passes(llm: LLM, requests: Sequence[Request]) -> Iterator[list[Part]]:
    """Runs requests together in the mode of an `LLM`: one pass for each step.

    A row that has ended and stays in its batch has no part: what it computes is nobody's. Nor has one that runs a
    piece of its prompt only, since it is handed no logits; what was off there shows in those that read it.
    """
    core, states = llm.start(requests)
    runner = core.runner = _WatchedRunner(core, states)
    while core.has_unfinished_requests():
        with _collecting(llm.model) as collector:
            step_rows = core.step()
        logits_by_state = {row.state: torch.from_numpy(row.logits[-1:]) for row in step_rows if row.token_ids}
        handed = [logits_by_state.get(state) for state in runner.states]
        if logits_by_state:
            yield _parts(runner.rows, collector.records, handed, llm.model)


class _WatchedRunner:
    """Stands before a run's own runner and notes which rows each step is given."""

    def __init__(self, core: EngineCore, states: Sequence[RequestState]) -> None:
        self._runner: ModelRunner = core.runner
        self._index_by_state = {state: index for index, state in enumerate(states)}
        self.states: list[RequestState] = []
        self.rows: list[_Row] = []

    @property
    def num_reserved_slots(self) -> int:
        """Token places that are reserved now."""
        return self._runner.num_reserved_slots

    def reset(self) -> None:
        """Let the cache drop everything."""
        self._runner.reset()

    def prepare(self, operations: Sequence[BlockOperation]) -> None:
        """Lets the cache do what was decided."""
        self._runner.prepare(operations)

    def execute(self, rows: Sequence[ScheduledRow]) -> list[RowLogits]:
        """Notes the rows and lets them run."""
        keeps_nothing = isinstance(self._runner, RecomputeRunner)
        self.states = [row.state for row in rows]
        self.rows = [
            _Row(
                None if row.state.is_finished else self._index_by_state[row.state],
                range(
                    0 if keeps_nothing else row.state.num_computed_tokens,
                    row.state.num_computed_tokens + row.num_scheduled_tokens,
                ),
                row.num_logits,
            )
            for row in rows
        ]
        return self._runner.execute(rows)


def _collecting(model: Llama) -> ActivationCollector:
    return ActivationCollector(model, input_paths=_INPUT_PATH_BY_NAME.values())


def _parts(
    rows: Sequence[_Row], records: Mapping[str, Tensor], handed: Sequence[Logits | None], model: Llama
) -> list[Part]:
    """Cuts what was recorded of packed tokens into the requests' own parts.

    Raises:
        ActivationMismatch: Another number of tokens ran than the rows have to run.
    """
    activations = name_refinfer_records(records, model.config.num_layers)
    activations |= {name: records[f"{path}.input"] for name, path in _INPUT_PATH_BY_NAME.items()}
    lengths = [len(row.positions) for row in rows]
    num_logits = [row.num_logits for row in rows]
    num_tokens = len(activations[INPUT_IDS])
    if num_tokens != sum(lengths):
        message = f"{num_tokens} tokens ran, where the requests of the step have {lengths} to run"
        raise ActivationMismatch(message, num_tokens=num_tokens, lengths=lengths)
    pieces_by_name = {
        name: torch.split(activation, lengths if len(activation) == num_tokens else num_logits)
        for name, activation in activations.items()
    }
    return [
        Part(
            row.request_index,
            row.positions,
            {name: pieces[place] for name, pieces in pieces_by_name.items()} | {STEP_LOGITS: logits},
        )
        for place, (row, logits) in enumerate(zip(rows, handed, strict=True))
        if row.request_index is not None and logits is not None
    ]
