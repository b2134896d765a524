"""The modes of `refinfer` in the dock: one subject for each cache."""

from collections.abc import Sequence
from pathlib import Path

import torch

from oracle.scenario import RequestSpec
from oracle.subjects.record import RequestRecord
from refinfer import LLM, SamplingParams
from refinfer.cache import CausalAttentionView, ContinuousCache
from refinfer.engine.generation import StepRow

MODES = ("none", "static", "continuous")
"""The modes of `refinfer`, named after their caches."""


class RefinferSubject:
    """One mode of `refinfer`.

    Args:
        folder: The checkpoint.
        mode: One of `MODES`.
        dtype: Dtype to run in.
        max_num_seqs: Most requests in one step.
    """

    def __init__(self, folder: Path, mode: str, *, dtype: str, max_num_seqs: int) -> None:
        self._mode = mode
        self._llm = LLM(folder, cache=mode, dtype=dtype, max_num_seqs=max_num_seqs, batch_invariant=False)

    @property
    def name(self) -> str:
        """How reports name it."""
        return self._mode

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        """Ids that end a request."""
        return self._llm.eos_token_ids

    def run(self, requests: Sequence[RequestSpec]) -> list[RequestRecord]:
        """Runs requests together; see `Subject.run`."""
        params = [
            SamplingParams(temperature=0.0, max_tokens=request.max_tokens, ignore_eos=request.ignore_eos)
            for request in requests
        ]
        made = self._llm.make_requests([list(request.prompt_token_ids) for request in requests], params)
        generation = self._llm.start(made)
        rows_by_id: dict[str, list[tuple[StepRow, int]]] = {request.request_id: [] for request in made}
        while generation.has_unfinished_requests():
            step_rows = generation.step()
            for row in step_rows:
                rows_by_id[row.state.request.request_id].append((row, len(step_rows)))
        return [_record(rows) for rows in rows_by_id.values()]

    def all_logits(self, token_ids: Sequence[int]) -> torch.Tensor:
        """Gives the logits of every position of one sequence, in one pass without a cache."""
        view = CausalAttentionView([len(token_ids)])
        return self._llm.model.forward(torch.tensor(token_ids), torch.arange(len(token_ids)), view)

    def chunked_prefill(self, prompts: Sequence[Sequence[int]], cuts: Sequence[Sequence[int]]) -> torch.Tensor:
        """Prefills prompts cut into chunks, first chunks together, then second ones; gives the last logits."""
        model = self._llm.model
        caches = [ContinuousCache(model.config, model.dtype) for _ in prompts]
        chunks = [
            [list(prompt[start:end]) for start, end in zip([0, *own], [*own, len(prompt)], strict=True)]
            for prompt, own in zip(prompts, cuts, strict=True)
        ]
        last_logits: list[torch.Tensor] = [torch.empty(0)] * len(prompts)
        for step in range(max(map(len, chunks))):
            indexes = [index for index, own in enumerate(chunks) if step < len(own)]
            logits = model.prefill([chunks[i][step] for i in indexes], [caches[i] for i in indexes])
            for row, index in enumerate(indexes):
                last_logits[index] = logits[row]
        return torch.stack(last_logits)


def _record(rows: Sequence[tuple[StepRow, int]]) -> RequestRecord:
    state = rows[-1][0].state
    return RequestRecord(
        prompt_token_ids=state.request.prompt_token_ids,
        output_token_ids=tuple(state.output_token_ids),
        logits=torch.stack([row.logits for row, _ in rows]),
        finish_reason=str(state.finish_reason),
        batch_sizes=tuple(size for _, size in rows),
    )
