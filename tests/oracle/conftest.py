"""Tiny Llama checkpoints made by transformers itself, and cases that follow a script instead of a model.

Nothing of ours stands between the former and a test, and no rounding between the latter and a verdict.
"""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis.strategies import SearchStrategy
from transformers import LlamaConfig, LlamaForCausalLM

from oracle import __main__ as command_line
from oracle.case import Case
from oracle.scenario import RequestSpec, Scenario
from oracle.strategies import requests
from oracle.subjects import RequestRecord
from tests.oracle.eventful_schedule import SCHEDULE

Corruption = Callable[[list[RequestRecord]], list[RequestRecord]]
"""Spoils what a run gives."""

SETTINGS: dict[str, Any] = {
    "vocab_size": 131,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "initializer_range": 0.2,  # attention is peaked, so that what goes wrong in it shows
    "rms_norm_eps": 1e-5,
}


@pytest.fixture(scope="session")
def save_llama(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Gives a function that writes a checkpoint with some settings changed, the same weights each time."""

    def save(*, dtype: torch.dtype = torch.float32, max_shard_size: str = "1GB", **settings: Any) -> Path:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model: Any = LlamaForCausalLM(LlamaConfig(**(SETTINGS | settings)))
            for name, parameter in model.named_parameters():
                if "norm" in name or name.endswith("bias"):  # ones and zeros, as transformers makes them
                    parameter.data += 0.2 * torch.randn(parameter.shape)
        folder = tmp_path_factory.mktemp("llama")
        model.to(dtype).save_pretrained(folder, max_shard_size=max_shard_size)
        return folder

    return save


@pytest.fixture(scope="session")
def llama_folder(save_llama: Callable[..., Path]) -> Path:
    """One checkpoint for tests that need nothing special of it."""
    return save_llama()


SCRIPT_VOCAB_SIZE = 11
SCRIPT_EOS_TOKEN_IDS = (3, 7)


def scripted_logits(token_ids: Sequence[int]) -> np.ndarray:
    """Logits after every token, each row a function of the tokens up to there and of nothing else."""
    rows = []
    prefix_hash = 0
    for token_id in token_ids:
        prefix_hash = zlib.crc32(token_id.to_bytes(4, "little"), prefix_hash)
        rows.append(_scripted_row(prefix_hash))
    return np.array(rows)


@lru_cache(maxsize=2**16)
def _scripted_row(prefix_hash: int) -> np.ndarray:
    return np.random.default_rng(prefix_hash).normal(scale=4.0, size=SCRIPT_VOCAB_SIZE)


class ScriptedSubject:
    """A subject whose model is `scripted_logits`, right in every way until a record is corrupted."""

    eos_token_ids = SCRIPT_EOS_TOKEN_IDS

    def __init__(self, scenario: Scenario, corrupt: Corruption) -> None:
        self._scenario = scenario
        self._corrupt = corrupt

    def run(self, requests: Sequence[RequestSpec]) -> list[RequestRecord]:
        """Runs each request by itself, and claims that all ran together."""
        records = [self._record(request, len(requests)) for request in requests]
        return self._corrupt(records)

    def prompts_answered(self, prompts: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
        """Each in its turn."""
        return list(prompts)

    def all_logits(self, token_ids: Sequence[int]) -> torch.Tensor:
        """The logits of every position."""
        return self._rounded(scripted_logits(token_ids))

    def chunked_prefill(self, prompts: Sequence[Sequence[int]], cuts: Sequence[Sequence[int]]) -> torch.Tensor:
        """The last logits of each prompt, wherever it is cut."""
        assert len(prompts) == len(cuts)
        return self._rounded(np.array([scripted_logits(prompt)[-1] for prompt in prompts]))

    def _record(self, request: RequestSpec, batch_size: int) -> RequestRecord:
        output: list[int] = []
        rows: list[torch.Tensor] = []
        is_ended = False
        while not is_ended and len(output) < request.max_tokens:
            rows.append(self.all_logits([*request.prompt_token_ids, *output])[-1])
            output.append(int(rows[-1].argmax()))
            is_ended = output[-1] in self.eos_token_ids and not request.ignore_eos
        return RequestRecord(
            prompt_token_ids=request.prompt_token_ids,
            output_token_ids=tuple(output),
            logits=torch.stack(rows),
            finish_reason="stop" if is_ended else "length",
            batch_sizes=(batch_size,) * len(output),
        )

    def _rounded(self, rows: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(rows).to(getattr(torch, self._scenario.dtype))


class ScriptedCase(Case):
    """A case without a checkpoint: subject, reference and witness follow one script."""

    def __init__(self, scenario: Scenario, corrupt: Corruption = lambda records: records) -> None:
        super().__init__(replace(scenario, checkpoint=None), Path("nowhere"))
        self._subject: Any = ScriptedSubject(scenario, corrupt)

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        """The script's own."""
        return SCRIPT_EOS_TOKEN_IDS

    def subject(self, mode: str, *, batch_invariant: bool | None = None) -> Any:
        """The one subject, whatever the mode and manner."""
        del mode, batch_invariant
        return self._subject

    def reference_logits(self, token_ids: tuple[int, ...], dtype: str | None = None) -> np.ndarray:
        """The script's logits, rounded to the dtype."""
        rows = torch.from_numpy(scripted_logits(token_ids))
        return rows.to(getattr(torch, dtype or self.scenario.dtype)).double().numpy()

    def witness_logits(self, token_ids: tuple[int, ...]) -> np.ndarray:
        """The script's logits as they are."""
        return scripted_logits(token_ids)


@pytest.fixture(scope="session")
def scripted_case() -> type[ScriptedCase]:
    """Makes a case out of a scenario and a corruption of what the subject's runs give."""
    return ScriptedCase


@pytest.fixture(scope="session")
def scripted_requests() -> SearchStrategy[RequestSpec]:
    """What may be asked of a scripted case: requests of a few tokens over its small vocabulary."""
    return requests(vocab_size=SCRIPT_VOCAB_SIZE, max_prompt_tokens=6, max_tokens=6)


@pytest.fixture(scope="session")
def schedule() -> Scenario:
    """A schedule on a tiny model in which everything befalls requests and blocks."""
    return SCHEDULE


@pytest.fixture(scope="session")
def symbolic(schedule: Scenario) -> Scenario:
    """The same on the symbolic model."""
    return replace(schedule, checkpoint=None, is_symbolic=True)


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    """Runs a command line in an empty folder; gives its exit status, its output and what it said of errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    num_threads = torch.get_num_threads()

    def command(*arguments):
        try:
            status: Any = command_line.main([str(argument) for argument in arguments])
        except SystemExit as end:
            status = end.code
        output, errors = capsys.readouterr()
        return status, output, errors

    yield command
    torch.set_num_threads(num_threads)
