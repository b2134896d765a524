"""What the properties of one scenario share: subjects, reference, witness, and their runs, each made once."""

import json
import shutil
import tempfile
import weakref
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch

from oracle.checkpoints import CheckpointSpec, write_checkpoint
from oracle.compare import LogitRows, as_rows
from oracle.errors import OutcomeMismatch, ScenarioError
from oracle.lone_answer import SampleRun
from oracle.reference import Reference
from oracle.scenario import RequestSpec, Scenario
from oracle.schedule_core import samples_alone
from oracle.subjects import RefinferSubject, RequestRecord
from oracle.tolerances import FLOAT64_BOUND, NOISE_FACTOR, SMALLEST_NOISE_IN_EPS
from oracle.witness import Witness
from refinfer.engine import LoadedModel
from refinfer.model import Llama, load_model

_EPS_BY_DTYPE = {"float32": 2.0**-23, "bfloat16": 2.0**-7, "float16": 2.0**-10}
"""Distance from 1 to the next number."""


class _GeneratedFolder:
    """A generated checkpoint among the temporary files, which goes when nobody holds it any more."""

    def __init__(self, spec: CheckpointSpec) -> None:
        self.path = write_checkpoint(spec, Path(tempfile.mkdtemp(prefix="oracle-")))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


@lru_cache(maxsize=16)
def _generate(spec: CheckpointSpec) -> _GeneratedFolder:
    return _GeneratedFolder(spec)


@lru_cache(maxsize=8)
def _load_draft_model(spec: CheckpointSpec) -> Llama:
    return load_model(_generate(spec).path)


@lru_cache(maxsize=8)
def _open_reference(folder: Path, dtype: str) -> Reference:
    return Reference.open(folder, dtype=dtype)


@lru_cache(maxsize=4)
def _open_witness(folder: Path) -> Witness:
    return Witness.open(folder)


class Case:
    """One scenario with everything that is computed for it.

    Args:
        scenario: What runs.
        folder: The checkpoint, for a scenario that generates none.
        num_chunkings: In how many ways the property `bits` cuts requests into chunks, besides the drawn one.
        loaded_by_manner: The model where it is loaded already, by whether it is in the invariant manner; others
            that the case needs are added.

    Raises:
        ScenarioError: The scenario names no checkpoint and no folder was given.
    """

    def __init__(
        self,
        scenario: Scenario,
        folder: Path | None = None,
        loaded_by_manner: dict[bool, LoadedModel] | None = None,
        *,
        num_chunkings: int = 2,
    ) -> None:
        if scenario.checkpoint is not None:
            self._generated = _generate(scenario.checkpoint)
            folder = self._generated.path
        if folder is None:
            message = "the scenario generates no checkpoint; name one with --model"
            raise ScenarioError(message)
        self.scenario = scenario
        self.folder = folder
        self.num_chunkings = num_chunkings
        self._subjects: dict[tuple[str, bool], RefinferSubject] = {}
        self._loaded_by_manner = {} if loaded_by_manner is None else loaded_by_manner
        self._lone_samples: list[list[SampleRun]] | None = None
        self._lone_logits_by_index: dict[int, torch.Tensor] = {}
        self._records_by_run: dict[tuple[str, tuple[int, ...]], list[RequestRecord]] = {}
        self._reference_by_tokens: dict[tuple[str, tuple[int, ...]], LogitRows] = {}
        self._witness_by_tokens: dict[tuple[int, ...], LogitRows] = {}

    def subject(self, mode: str, *, batch_invariant: bool | None = None) -> RefinferSubject:
        """Gives a mode of `refinfer`, opened in the scenario's dtype, and in its manner unless told another."""
        is_invariant = self.scenario.batch_invariant if batch_invariant is None else batch_invariant
        if (mode, is_invariant) not in self._subjects:
            self._subjects[mode, is_invariant] = RefinferSubject(
                self.loaded(batch_invariant=is_invariant),
                mode,
                dtype=self.scenario.dtype,
                max_num_seqs=self.scenario.max_num_seqs,
                batch_invariant=is_invariant,
            )
        return self._subjects[mode, is_invariant]

    def loaded(self, *, batch_invariant: bool) -> LoadedModel:
        """Gives the model, loaded once in each manner of numerics."""
        if batch_invariant not in self._loaded_by_manner:
            self._loaded_by_manner[batch_invariant] = LoadedModel.load(
                self.folder, dtype=self.scenario.dtype, batch_invariant=batch_invariant
            )
        return self._loaded_by_manner[batch_invariant]

    @property
    def draft_model(self) -> Llama | None:
        """Another model of the same vocabulary, where the scenario guesses with one, and generates its own."""
        spec = self.scenario.checkpoint
        if self.scenario.engine.speculative != "draft" or spec is None:
            return None
        return _load_draft_model(replace(spec, seed=spec.seed + 1, num_layers=1))

    @property
    def lone_samples(self) -> list[list[SampleRun]]:
        """For every request, what each of its samples gives alone, without a cache."""
        if self._lone_samples is None:
            self._lone_samples = samples_alone(
                self.loaded(batch_invariant=self.scenario.batch_invariant), self.scenario
            )
        return self._lone_samples

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        """What the checkpoint's files name as end-of-sequence ids, read without the subject's help.

        The tokenizer's `eos_token` is one beside those of generation_config.json or config.json, as in vLLM.
        """
        return tuple(dict.fromkeys((*self._eos_token_ids_of_settings(), *self._eos_token_ids_of_tokenizer())))

    def _eos_token_ids_of_settings(self) -> tuple[int, ...]:
        for name in ("generation_config.json", "config.json"):
            path = self.folder / name
            content = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
            value = content.get("eos_token_id")
            if value is not None:
                return tuple(value) if isinstance(value, list) else (value,)
        return ()

    def _eos_token_ids_of_tokenizer(self) -> tuple[int, ...]:
        paths = [self.folder / name for name in ("tokenizer_config.json", "tokenizer.json")]
        if not all(path.exists() for path in paths):
            return ()
        settings, tokenizer = (json.loads(path.read_text(encoding="utf-8")) for path in paths)
        token = settings.get("eos_token")
        token = token["content"] if isinstance(token, dict) else token
        return tuple(added["id"] for added in tokenizer["added_tokens"] if added["content"] == token)

    def records(self, mode: str) -> list[RequestRecord]:
        """Runs the scenario in a mode."""
        return self.records_in_order(mode, tuple(range(len(self.scenario.requests))))

    def records_in_order(self, mode: str, order: tuple[int, ...]) -> list[RequestRecord]:
        """Runs some of the requests in some order; one record for each, in that order.

        Raises:
            OutcomeMismatch: The records do not belong to the requests, or too many of them ran together.
        """
        if (mode, order) not in self._records_by_run:
            requests = [self.scenario.requests[index] for index in order]
            records = self.subject(mode).run(requests)
            _check_belonging(requests, records, mode)
            _check_batch_sizes(records, self.scenario.max_num_seqs, mode)
            self._records_by_run[mode, order] = records
        return self._records_by_run[mode, order]

    def lone_logits(self, index: int) -> torch.Tensor:
        """Gives the logits at every position of one request, run by itself in one pass without a cache.

        Its output tokens are those that it emits alone without a cache.
        """
        if index not in self._lone_logits_by_index:
            (record,) = self.records_in_order("none", (index,))
            self._lone_logits_by_index[index] = self.subject("none").all_logits(record.token_ids)
        return self._lone_logits_by_index[index]

    def reference_logits(self, token_ids: tuple[int, ...], dtype: str | None = None) -> LogitRows:
        """Gives the reference's logits at every position, in the scenario's dtype unless told another."""
        dtype = self.scenario.dtype if dtype is None else dtype
        if (dtype, token_ids) not in self._reference_by_tokens:
            logits = _open_reference(self.folder, dtype).logits(list(token_ids))
            self._reference_by_tokens[dtype, token_ids] = as_rows(logits)
        return self._reference_by_tokens[dtype, token_ids]

    def witness_logits(self, token_ids: tuple[int, ...]) -> LogitRows:
        """Gives the float64 witness's logits at every position."""
        if token_ids not in self._witness_by_tokens:
            self._witness_by_tokens[token_ids] = _open_witness(self.folder).logits(list(token_ids))
        return self._witness_by_tokens[token_ids]

    def referee_logits(self, token_ids: tuple[int, ...]) -> LogitRows:
        """Gives the logits that tokens are judged by: the reference in float32, else the witness."""
        if self.scenario.dtype == "float32":
            return self.reference_logits(token_ids)
        return self.witness_logits(token_ids)

    def bound(self, token_ids: tuple[int, ...]) -> float:
        """Gives the largest permitted difference of one logit, from the reference's own error on these tokens."""
        if self.scenario.dtype == "float64":
            return FLOAT64_BOUND
        witness = self.witness_logits(token_ids)
        error = np.abs(self.reference_logits(token_ids) - witness).max()
        eps = _EPS_BY_DTYPE[self.scenario.dtype]
        noise = max(float(error), SMALLEST_NOISE_IN_EPS * eps * float(np.abs(witness).max()))
        return NOISE_FACTOR * noise

    def output_rows(self, record: RequestRecord) -> slice:
        """Gives the positions of a record whose logits its output tokens were picked from."""
        return slice(len(record.prompt_token_ids) - 1, len(record.token_ids) - 1)


def _check_belonging(requests: Sequence[RequestSpec], records: Sequence[RequestRecord], mode: str) -> None:
    """Refuses records of other requests: each could be right in itself, so nothing else would show it."""
    if len(records) != len(requests):
        message = f"{mode}: {len(requests)} requests were given and {len(records)} records came back"
        raise OutcomeMismatch(message, num_requests=len(requests), num_records=len(records))
    for index, (request, record) in enumerate(zip(requests, records, strict=True)):
        if record.prompt_token_ids != request.prompt_token_ids:
            message = (
                f"{mode}, request {index}: another prompt ran than was asked for, "
                f"{record.prompt_token_ids} instead of {request.prompt_token_ids}"
            )
            raise OutcomeMismatch(message, index=index, prompt_token_ids=record.prompt_token_ids)


def _check_batch_sizes(records: Sequence[RequestRecord], max_num_seqs: int, mode: str) -> None:
    for index, record in enumerate(records):
        largest = max(record.batch_sizes, default=0)
        if largest > max_num_seqs:
            message = f"{mode}, request {index}: ran in a step of {largest} requests; max_num_seqs is {max_num_seqs}"
            raise OutcomeMismatch(message, index=index, batch_size=largest)
