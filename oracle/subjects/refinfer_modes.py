"""The modes of `refinfer` in the dock: one subject for each cache."""

from collections.abc import Sequence
from itertools import count
from pathlib import Path

import torch

from oracle.drive import check_ends
from oracle.scenario import RequestSpec
from oracle.subjects.record import RequestRecord
from refinfer import LLM, SamplingParams
from refinfer.cache import CausalAttentionView, ContinuousCache
from refinfer.engine import LoadedModel
from refinfer.engine.answer import StepRow

MODES = ("none", "static", "continuous", "paged", "paged_gather")
"""The modes of `refinfer`, named after their caches; the paged one with either of its readers, blocks and gather."""

_OPTIONS_BY_MODE: dict[str, dict[str, str]] = {
    "paged": {"cache": "paged", "paged_attention": "blocks"},
    "paged_gather": {"cache": "paged", "paged_attention": "gather"},
}


def options_of(mode: str) -> dict[str, str]:
    """Gives the engine options that stand for a mode."""
    return _OPTIONS_BY_MODE.get(mode, {"cache": mode})


class RefinferSubject:
    """One mode of `refinfer`.

    Args:
        model: The checkpoint, or the same loaded already.
        mode: One of `MODES`.
        dtype: Dtype to run in.
        max_num_seqs: Most requests in one step.
        batch_invariant: Whether it runs in the invariant manner of numerics, or in the plain one.
    """

    def __init__(
        self, model: Path | LoadedModel, mode: str, *, dtype: str, max_num_seqs: int, batch_invariant: bool = True
    ) -> None:
        self._mode = mode
        self._max_num_seqs = max_num_seqs
        self._llm = LLM(
            model, dtype=dtype, max_num_seqs=max_num_seqs, batch_invariant=batch_invariant, **options_of(mode)
        )

    @property
    def name(self) -> str:
        """How reports name it."""
        return self._mode

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        """Ids that end a request."""
        return self._llm.eos_token_ids

    def run(self, requests: Sequence[RequestSpec]) -> list[RequestRecord]:
        """Runs requests together; see `Subject.run`.

        Raises:
            NeverEnds: They go on without an end.
        """
        params = [
            SamplingParams(temperature=0.0, max_tokens=request.max_tokens, ignore_eos=request.ignore_eos)
            for request in requests
        ]
        made = self._llm.make_requests([list(request.prompt_token_ids) for request in requests], params)
        core, _ = self._llm.start(made)
        rows_by_id: dict[str, list[tuple[StepRow, int]]] = {request.request_id: [] for request in made}
        num_tokens = sum(len(request.prompt_token_ids) + request.max_tokens for request in requests)
        num_steps = 0
        while core.has_unfinished_requests():
            check_ends(num_steps := num_steps + 1, num_tokens)
            step_rows = [row for row in core.step() if row.token_ids]
            for row in step_rows:
                rows_by_id[row.state.request.request_id].append((row, len(step_rows)))
        return [_record(rows, self._llm.model.dtype) for rows in rows_by_id.values()]

    def prompts_answered(self, prompts: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
        """Answers prompts with one token each, as a caller would, on an engine that has done nothing yet.

        Returns:
            The prompt of each answer, in the order of the answers.
        """
        fresh = LLM(self._llm.engine.loaded, **options_of(self._mode))
        answers = fresh.generate([list(prompt) for prompt in prompts], SamplingParams(temperature=0.0, max_tokens=1))
        return [tuple(answer.prompt_token_ids) for answer in answers]

    def all_logits(self, token_ids: Sequence[int]) -> torch.Tensor:
        """Gives the logits of every position of one sequence, in one pass without a cache."""
        view = CausalAttentionView([len(token_ids)])
        return self._llm.model.forward(torch.tensor(token_ids), torch.arange(len(token_ids)), view)

    def chunked_prefill(self, prompts: Sequence[Sequence[int]], cuts: Sequence[Sequence[int]]) -> torch.Tensor:
        """Prefills prompts cut into chunks, first chunks together, then second ones; gives the last logits."""
        logits = self.run_chunks(prompts, cuts, [0] * len(prompts), max_num_seqs=len(prompts))
        return torch.stack([rows[-1] for rows in logits])

    def run_chunks(
        self,
        token_ids_by_request: Sequence[Sequence[int]],
        cuts: Sequence[Sequence[int]],
        arrivals: Sequence[int],
        *,
        max_num_seqs: int | None = None,
    ) -> list[torch.Tensor]:
        """Runs sequences of known tokens in chunks over caches of their own, mixed as they come.

        Args:
            token_ids_by_request: All tokens of each request.
            cuts: Where each request is cut into chunks, ascending.
            arrivals: The step before which a request does not run.
            max_num_seqs: Most requests in one step, the first ones first; None takes the subject's own limit.

        Returns:
            For each request the logits after each of its chunks.
        """
        model = self._llm.model
        caches = [ContinuousCache(model.config, model.dtype) for _ in token_ids_by_request]
        chunks = [
            [list(token_ids[start:end]) for start, end in zip([0, *own], [*own, len(token_ids)], strict=True)]
            for token_ids, own in zip(token_ids_by_request, cuts, strict=True)
        ]
        rows: list[list[torch.Tensor]] = [[] for _ in chunks]
        for step in count():
            left = [index for index, own in enumerate(chunks) if len(rows[index]) < len(own)]
            if not left:
                break
            running = [index for index in left if arrivals[index] <= step][: max_num_seqs or self._max_num_seqs]
            if not running:
                continue
            logits = model.prefill([chunks[i][len(rows[i])] for i in running], [caches[i] for i in running])
            for row, index in enumerate(running):
                rows[index].append(logits[row])
        return [torch.stack(own) for own in rows]


def _record(rows: Sequence[tuple[StepRow, int]], dtype: torch.dtype) -> RequestRecord:
    state = rows[-1][0].state
    return RequestRecord(
        prompt_token_ids=state.request.prompt_token_ids,
        output_token_ids=tuple(state.output_token_ids),
        logits=torch.stack([torch.from_numpy(row.logits[-1]) for row, _ in rows]).to(dtype),
        finish_reason=str(state.finish_reason),
        batch_sizes=tuple(size for _, size in rows),
    )
