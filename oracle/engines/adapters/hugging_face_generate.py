"""transformers' `generate` behind the protocol: each request by itself, or all in one left-padded batch."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM, GenerationConfig

from oracle.engines.adapter import Refused
from oracle.engines.adapters.hugging_face_answers import left_padded, to_sample, without_padding
from oracle.engines.adapters.hugging_face_settings import (
    WITNESSES_ALONE,
    WITNESSES_PADDED,
    declaration_alone,
    declaration_padded,
    generation_arguments,
    knob_arguments,
    pad_token_id_of,
    stop_token_ids_of,
)
from oracle.engines.declaration import EngineDeclaration
from oracle.engines.messages import EngineOutput, EngineRequest, EngineRun, EngineSample


class HuggingFaceGenerateAdapter:
    """`generate`, one call for each request."""

    def __init__(self) -> None:
        self._opened: OpenModel | None = None

    def declare(self) -> EngineDeclaration:
        """See `EngineAdapter.declare`."""
        return declaration_alone(transformers.__version__)

    def open(self, folder: str, knobs: dict[str, Any]) -> None:
        """See `EngineAdapter.open`."""
        self.close()
        self._opened = OpenModel(folder, knobs)

    def run(self, requests: Sequence[EngineRequest]) -> EngineRun:
        """See `EngineAdapter.run`."""
        opened = _demand_open(self._opened)
        opened.witnesses = Counter(dict.fromkeys(WITNESSES_ALONE, 0))
        outputs = [output for request in requests for output in opened.answer([request])]
        return EngineRun(tuple(outputs), dict(opened.witnesses))

    def close(self) -> None:
        """See `EngineAdapter.close`."""
        self._opened = None


class HuggingFacePaddedAdapter(HuggingFaceGenerateAdapter):
    """`generate`, one call for all requests, which share their parameters."""

    def declare(self) -> EngineDeclaration:
        """See `EngineAdapter.declare`."""
        return declaration_padded(transformers.__version__)

    def run(self, requests: Sequence[EngineRequest]) -> EngineRun:
        """See `EngineAdapter.run`; requests that do not have the first one's parameters are refused."""
        opened = _demand_open(self._opened)
        opened.witnesses = Counter(dict.fromkeys(WITNESSES_PADDED, 0))
        first = requests[0]
        alike = [request for request in requests if _asks_the_same(request, first)]
        output_by_id = {output.request_id: output for output in opened.answer(alike)}
        refused = "a batch has one GenerationConfig, and the first request asks for something else"
        outputs = (
            output_by_id.get(request.request_id, EngineOutput(request.request_id, refused=refused))
            for request in requests
        )
        return EngineRun(tuple(outputs), dict(opened.witnesses))


class OpenModel:
    """A model of transformers, and what its `generate` is called with.

    Args:
        folder: A checkpoint.
        knobs: As declared.

    Raises:
        Refused: transformers does not take the checkpoint with these settings.
    """

    def __init__(self, folder: str, knobs: Mapping[str, Any]) -> None:
        self._knobs = knobs
        self.model = load_model(folder, knobs["attn_implementation"])
        self.eos_token_ids = take_eos_token_ids(self.model)
        self._assistant = None
        if knobs.get("speculation") == "assistant":
            self._assistant = load_model(folder, knobs["attn_implementation"])
        self.witnesses: Counter[str] = Counter()
        self.model.register_forward_pre_hook(self._see_forward)

    def answer(self, requests: Sequence[EngineRequest]) -> list[EngineOutput]:
        """Runs requests of the same parameters in one call; what `generate` calls a wrong value is a refusal."""
        first = requests[0]
        stop_token_ids = stop_token_ids_of(first.parameters, self.eos_token_ids)
        pad_token_id = pad_token_id_of(self._knobs.get("pad_token", "end"), stop_token_ids)
        before = self.witnesses["forwards"]
        try:
            result, width = self._generate(requests, stop_token_ids, pad_token_id)
        except ValueError as error:
            return [EngineOutput(request.request_id, refused=str(error)) for request in requests]
        tokens = [without_padding(row, stop_token_ids, pad_token_id) for row in result.sequences[:, width:].tolist()]
        self._count(requests, result.sequences.shape[1] - width, len(tokens), self.witnesses["forwards"] - before)
        # One row for each answer, those of a request one after the other.
        samples = self._samples(result, tokens, first.parameters)
        number = len(samples) // len(requests)
        return [
            EngineOutput(request.request_id, tuple(samples[place * number : (place + 1) * number]))
            for place, request in enumerate(requests)
        ]

    def _generate(
        self, requests: Sequence[EngineRequest], stop_token_ids: list[int], pad_token_id: int
    ) -> tuple[Any, int]:
        parameters = requests[0].parameters
        arguments = generation_arguments(parameters, requests[0].max_tokens, stop_token_ids)
        arguments |= {**knob_arguments(self._knobs), "pad_token_id": pad_token_id}
        config: Any = GenerationConfig(**arguments)  # type: ignore[no-untyped-call]  # it comes without types
        rows, masks = left_padded([request.prompt_token_ids for request in requests], pad_token_id)
        if parameters.get("seed") is not None:
            torch.manual_seed(parameters["seed"])
        result = self.model.generate(
            torch.tensor(rows, dtype=torch.long),
            attention_mask=torch.tensor(masks, dtype=torch.long),
            generation_config=config,
            prefix_allowed_tokens_fn=_only(parameters.get("allowed_token_ids")),
            assistant_model=self._assistant,
        )
        return result, len(rows[0])

    def _samples(
        self, result: Any, tokens: Sequence[Sequence[int]], parameters: Mapping[str, Any]
    ) -> list[EngineSample]:
        wanted = parameters.get("logprobs")
        rows: list[Any] = [None] * len(tokens)
        chosen, logits = list(rows), list(rows)
        if wanted is not None:
            rows = torch.stack(result.scores, dim=1).log_softmax(dim=-1).tolist()
            chosen = self.model.compute_transition_scores(
                result.sequences, result.scores, normalize_logits=True
            ).tolist()
        if parameters.get("logits"):
            logits = torch.stack(result.logits, dim=1).tolist()
        return [
            to_sample(own, logprobs=chosen[place], rows=rows[place], number=int(wanted or 0), logits=logits[place])
            for place, own in enumerate(tokens)
        ]

    def _see_forward(self, _module: object, _arguments: object) -> None:
        self.witnesses["forwards"] += 1

    def _count(self, requests: Sequence[EngineRequest], num_steps: int, num_rows: int, num_forwards: int) -> None:
        """Counts what happened in one call, by how many forward passes there were for so many tokens."""
        if self._knobs.get("speculation", "none") == "none":
            self.witnesses["chunks"] += max(0, num_forwards - num_steps)
        elif self._knobs["speculation"] != "early-exit":  # which guesses with passes of the same model
            self.witnesses["accepted_tokens"] += num_steps - num_forwards
        if "pad_token" in self._knobs:
            lengths = [len(request.prompt_token_ids) for request in requests]
            self.witnesses["padding_tokens"] += sum(max(lengths) - length for length in lengths)
            self.witnesses["max_batch"] = max(self.witnesses["max_batch"], num_rows)


def load_model(folder: str, attn_implementation: str) -> Any:
    """Loads a checkpoint in float32, and asks no hub.

    Raises:
        Refused: transformers does not take it.
    """
    try:
        model: Any = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation=attn_implementation, local_files_only=True
        )
    except (ValueError, ImportError, OSError) as error:
        raise Refused(str(error)) from error
    return model.eval()


def take_eos_token_ids(model: Any) -> list[int]:
    """Gives what ends a request, and takes it out of the model, whose defaults would stand in for "none" otherwise."""
    value = model.generation_config.eos_token_id
    model.generation_config.eos_token_id = None
    if value is None:
        return []
    return [value] if isinstance(value, int) else list(value)


def _only(token_ids: Sequence[int] | None) -> Callable[[int, torch.Tensor], list[int]] | None:
    """Gives what lets `generate` choose among some tokens only."""
    if token_ids is None:
        return None
    allowed = list(token_ids)
    return lambda _row, _tokens: allowed


def _asks_the_same(request: EngineRequest, other: EngineRequest) -> bool:
    return request.parameters == other.parameters and request.max_tokens == other.max_tokens


def _demand_open(opened: OpenModel | None) -> OpenModel:
    if opened is None:
        message = "no model is open"
        raise RuntimeError(message)
    return opened
