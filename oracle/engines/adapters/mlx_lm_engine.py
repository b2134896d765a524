"""mlx-lm behind the protocol: requests one after the other, in a batch of its `BatchGenerator`, or with a draft."""

from collections import Counter
from collections.abc import Iterable, Sequence
from importlib import metadata
from typing import Any

import mlx.core as mx
from mlx_lm.generate import stream_generate
from mlx_lm.tokenizer_utils import TokenizerWrapper

from oracle.engines.adapters.mlx_lm_batch import BatchRun
from oracle.engines.adapters.mlx_lm_model import OpenModel, processors_of, sampler_of
from oracle.engines.adapters.mlx_lm_settings import (
    WITNESSES,
    Transcript,
    count_guesses,
    declaration_of,
    stop_token_ids_of,
    unknown_parameters,
)
from oracle.engines.declaration import EngineDeclaration
from oracle.engines.messages import EngineOutput, EngineRequest, EngineRun


class WithoutText:
    """As much of a tokenizer as `stream_generate` asks for; no token is ever turned into text."""

    eos_token_id = None
    chat_template = None
    apply_chat_template = None
    last_segment = ""

    def __init__(self, _tokenizer: object = None) -> None:
        """Takes what a detokenizer is given, since it is one as well."""

    def get_vocab(self) -> dict[str, int]:
        """Gives no token a name."""
        return {}

    def reset(self) -> None:
        """Has nothing to forget."""

    def finalize(self) -> None:
        """Has nothing to end."""

    def add_token(self, token_id: int) -> None:
        """Makes no text of a token."""


class MlxLmAdapter:
    """mlx-lm as an engine; what it keeps of prompts between runs is kept."""

    def __init__(self) -> None:
        self._opened: OpenModel | None = None
        self._generator: Any = None

    def declare(self) -> EngineDeclaration:
        """See `EngineAdapter.declare`."""
        return declaration_of(metadata.version("mlx-lm"))

    def open(self, folder: str, knobs: dict[str, Any]) -> None:
        """See `EngineAdapter.open`."""
        self.close()
        self._opened = OpenModel.open(folder, knobs)

    def close(self) -> None:
        """See `EngineAdapter.close`."""
        if self._generator is not None:
            self._generator.close()
        if self._opened is not None:
            self._opened.close()
        self._opened, self._generator = None, None

    def run(self, requests: Sequence[EngineRequest]) -> EngineRun:
        """See `EngineAdapter.run`; in a batch, requests with a seed come alone afterwards, as in mlx-lm's server.

        Raises:
            RuntimeError: Nothing is open.
        """
        if self._opened is None:
            message = "no model is open"
            raise RuntimeError(message)
        witnesses: Counter[str] = Counter(dict.fromkeys(WITNESSES, 0))
        outputs = {request.request_id: _refusal_of(request) for request in requests}
        taken = [request for request in requests if outputs[request.request_id] is None]
        together = [request for request in taken if self._goes_into_batch(request)]
        if together:
            outputs.update(self._run_batch(self._opened, together, witnesses))
        for request in taken:
            if not self._goes_into_batch(request):
                outputs[request.request_id] = run_alone(self._opened, request, witnesses)
        given = (outputs[request.request_id] for request in requests)
        return EngineRun(tuple(output for output in given if output is not None), dict(witnesses))

    def _goes_into_batch(self, request: EngineRequest) -> bool:
        is_batch = self._opened is not None and self._opened.knobs["way"] == "batch"
        return is_batch and request.parameters.get("seed") is None

    def _run_batch(
        self, opened: OpenModel, requests: Sequence[EngineRequest], witnesses: Counter[str]
    ) -> dict[str, EngineOutput]:
        """Runs requests together; a generator that raised is not used again."""
        run = BatchRun(opened, self._generator, witnesses)
        self._generator = None
        outputs = run.run(requests)
        self._generator = run.generator
        return outputs


def _refusal_of(request: EngineRequest) -> EngineOutput | None:
    unknown = unknown_parameters(request)
    if not unknown:
        return None
    return EngineOutput(request.request_id, refused=f"mlx-lm has no {', '.join(unknown)}")


def run_alone(opened: OpenModel, request: EngineRequest, witnesses: Counter[str]) -> EngineOutput:
    """Runs one request by `stream_generate`, and keeps its prompt as mlx-lm's server does."""
    parameters = request.parameters
    if parameters.get("seed") is not None:
        mx.random.seed(parameters["seed"])
    try:
        options = {"sampler": sampler_of(parameters), "logits_processors": processors_of(parameters)}
    except ValueError as error:
        return EngineOutput(request.request_id, refused=str(error))
    transcript = Transcript(request)
    cache, num_cached = opened.fetch(request.prompt_token_ids)
    cache = opened.new_cache() if cache is None else cache
    witnesses["cached_tokens"] += num_cached
    options |= {
        "prompt_cache": cache,
        "prefill_step_size": opened.knobs["prefill_step_size"],
        "num_draft_tokens": opened.knobs["num_draft_tokens"],
        "prompt_progress_callback": _chunk_counter(witnesses),
    }
    responses = stream_generate(
        opened.model,
        _ending_with(stop_token_ids_of(parameters, opened.eos_token_ids)),
        list(request.prompt_token_ids[num_cached:]),
        max_tokens=request.max_tokens,
        draft_model=opened.draft,
        **options,
    )
    are_drafts = _follow(responses, transcript)
    _count(witnesses, opened, request, are_drafts)
    witnesses["aborts"] += transcript.finish_reason == "abort"
    opened.keep((*request.prompt_token_ids, *transcript.token_ids), cache)
    return transcript.output()


def _follow(responses: Any, transcript: Transcript) -> list[bool]:
    """Takes down what comes, and ends it where the request is to be aborted; tells which tokens were drafted."""
    are_drafts = []
    for response in responses:
        transcript.token_ids.append(int(response.token))
        if transcript.wants_scores:
            transcript.rows.append(response.logprobs.tolist())
        are_drafts.append(bool(response.from_draft))
        transcript.finish_reason = response.finish_reason
        if transcript.finish_reason is None and transcript.is_due_to_abort:
            transcript.finish_reason = "abort"
            break
    responses.close()
    return are_drafts


def _count(witnesses: Counter[str], opened: OpenModel, request: EngineRequest, are_drafts: Sequence[bool]) -> None:
    num_guesses = opened.knobs["num_draft_tokens"] if opened.draft is not None else 0
    accepted, rejected = count_guesses(are_drafts, num_guesses, request.max_tokens)
    witnesses["accepted_tokens"] += accepted
    witnesses["rejected_tokens"] += rejected
    witnesses["steps"] += len(are_drafts) - accepted
    witnesses["max_batch"] = max(witnesses["max_batch"], 1)


def _chunk_counter(witnesses: Counter[str]) -> Any:
    """Gives what counts the pieces of a prompt; mlx-lm calls it before the first of them as well."""

    def count(num_done: int, _num_tokens: int) -> None:
        witnesses["chunks"] += num_done > 0

    return count


def _ending_with(stop_token_ids: Iterable[int]) -> Any:
    """Gives mlx-lm's own wrapper of a tokenizer, which knows nothing but what ends a request."""
    return TokenizerWrapper(WithoutText(), detokenizer_class=WithoutText, eos_token_ids=list(stop_token_ids))
