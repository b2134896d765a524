"""Engines that follow a script instead of a model, and a referee of the same script: no rounding, no weights."""

import json
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oracle.contract.processing import Place, processed
from oracle.contract.referee import Judgement
from oracle.contract.scenario import EngineScenario
from oracle.contract.trial import Trial
from oracle.engines.adapter import EngineAdapter, Refused
from oracle.engines.declaration import EngineDeclaration
from oracle.engines.messages import EngineOutput, EngineRequest, EngineRun, EngineSample

VOCAB_SIZE = 24
EOS_TOKEN_IDS = (6, 7)
BOUND = 0.01

RowOf = Callable[[tuple[int, ...]], Sequence[float]]
"""Gives the logits after some tokens."""

CAPABILITIES = ("logprobs", "top_logprobs", "logits", "prompt_logprobs", "seeded_sampling", "batching", "aborts")
PARAMETERS = (
    "temperature",
    "top_k",
    "top_p",
    "seed",
    "n",
    "repetition_penalty",
    "logit_bias",
    "allowed_token_ids",
    "min_tokens",
    "ignore_eos",
    "stop_token_ids",
    "logprobs",
    "prompt_logprobs",
)


def declare(**fields: Any) -> EngineDeclaration:
    """Declares what the scripted engine does, with some fields changed."""
    return EngineDeclaration(**{"name": "scripted", "capabilities": CAPABILITIES, "parameters": PARAMETERS, **fields})


def scripted_row(token_ids: tuple[int, ...]) -> Sequence[float]:
    """Logits that depend on every token up to there."""
    return _row_of_hash(zlib.crc32(repr(tuple(map(int, token_ids))).encode()))


@lru_cache(maxsize=2**14)
def _row_of_hash(seed: int) -> Sequence[float]:
    return np.random.default_rng(seed).normal(scale=2.0, size=VOCAB_SIZE).tolist()  # type: ignore[no-any-return]


class ScriptedReferee:
    """Says what the script says, and that rounding may do so much."""

    name = "script"

    def __init__(self, row_of: RowOf = scripted_row, bound: float = BOUND) -> None:
        self._row_of = row_of
        self._bound = bound
        self.num_judged = 0

    def judge(self, token_ids: Sequence[int]) -> Judgement:
        """Gives the script's logits."""
        self.num_judged += 1
        rows = [self._row_of(tuple(token_ids[: place + 1])) for place in range(len(token_ids))]
        return Judgement(np.array(rows, dtype=np.float64), self._bound)


def log_softmax(row: Any) -> np.ndarray:
    """Log-probabilities, written once more."""
    shifted = np.array(row) - np.max(row)
    logprobs: np.ndarray = shifted - np.log(np.exp(shifted).sum())
    return logprobs


class ScriptedEngine:
    """An engine that is right in every way, until what it gives is spoiled.

    Args:
        declaration: What it declares.
        row_of: Its model.
        spoil: Changes what a run of requests gives.
    """

    def __init__(
        self,
        declaration: EngineDeclaration | None = None,
        row_of: RowOf = scripted_row,
        spoil: Callable[[Sequence[EngineRequest], EngineRun], EngineRun] = lambda _, run: run,
    ) -> None:
        self.declaration = declaration or declare()
        self.opened: list[tuple[str, dict[str, Any]]] = []
        self.ran: list[tuple[EngineRequest, ...]] = []
        self.num_closed = 0
        self._row_of = row_of
        self._spoil = spoil

    def declare(self) -> EngineDeclaration:
        """See `EngineAdapter.declare`."""
        return self.declaration

    def open(self, folder: str, knobs: dict[str, Any]) -> None:
        """Notes how it is opened."""
        self.opened.append((folder, knobs))

    def run(self, requests: Sequence[EngineRequest]) -> EngineRun:
        """Runs each request by itself."""
        self.ran.append(tuple(requests))
        outputs = tuple(map(self._answer, requests))
        return self._spoil(requests, EngineRun(outputs, {"runs": 1, "max_batch": len(requests)}))

    def close(self) -> None:
        """Notes that it is closed."""
        self.num_closed += 1

    def _answer(self, request: EngineRequest) -> EngineOutput:
        refused = _fault_of(request)
        if refused is not None:
            return EngineOutput(request.request_id, refused=refused)
        number = int(request.parameters.get("n", 1))
        samples = tuple(self._sample(request, place) for place in range(number))
        wanted = request.parameters.get("prompt_logprobs")
        prompt = request.prompt_token_ids
        entries = None
        if wanted is not None:
            rows = [log_softmax(self._row_of(prompt[:place])) for place in range(1, len(prompt))]
            entries = (None, *(_listed(row, wanted, prompt[place + 1]) for place, row in enumerate(rows)))
        return EngineOutput(request.request_id, samples, entries)

    def _sample(self, request: EngineRequest, number: int) -> EngineSample:
        place = Place(
            request.parameters,
            request.prompt_token_ids,
            (),
            EOS_TOKEN_IDS,
            self.declaration.parameter_order,
            self.declaration.penalties_count_prompt,
            self.declaration.ignore_eos == "bans",
        )
        noise = np.random.default_rng(
            [zlib.crc32(repr(request.prompt_token_ids).encode()), int(place.value("seed") or 0), number]
        )
        most = min(request.max_tokens, request.abort_after or request.max_tokens)
        tokens: list[int] = []
        rows: list[np.ndarray] = []
        stop = None
        while stop is None and len(tokens) < most:
            rows.append(np.array(self._row_of(request.prompt_token_ids + tuple(tokens))))
            scores = processed(rows[-1], replace(place, output=tuple(tokens)))
            tokens.append(_drawn(scores, place, noise))
            stop = tokens[-1] if tokens[-1] in place.stop_token_ids else None
        if stop is not None and not self.declaration.shows_stop_token:
            tokens.pop()
        reason = "stop" if stop is not None else "length" if len(tokens) == request.max_tokens else "abort"
        sample = EngineSample(tuple(tokens), reason, stop)
        wanted = place.value("logprobs")
        if wanted is None:
            return sample
        scores_of = [log_softmax(row) for row in rows[: len(tokens)]]
        return replace(
            sample,
            logprobs=tuple(float(row[token]) for row, token in zip(scores_of, tokens, strict=True)),
            top_logprobs=tuple(_listed(row, wanted, token) for row, token in zip(scores_of, tokens, strict=True)),
        )


def _listed(row: np.ndarray, wanted: int, token_id: int) -> dict[int, float]:
    best = [int(each) for each in np.argsort(-row, kind="stable")[:wanted]]
    return {each: float(row[each]) for each in (*best, token_id)}


def _drawn(scores: np.ndarray, place: Place, noise: np.random.Generator) -> int:
    temperature = float(place.value("temperature"))
    if temperature == 0.0:
        return int(scores.argmax())
    order = np.argsort(-scores, kind="stable")
    weights = np.exp((scores[order] - scores.max()) / temperature)
    if place.value("top_k"):
        weights[place.value("top_k") :] = 0.0
    shares = weights / weights.sum()
    shares[np.cumsum(shares) - shares >= place.value("top_p")] = 0.0
    return int(noise.choice(order, p=shares / shares.sum()))


def _fault_of(request: EngineRequest) -> str | None:
    values = request.parameters
    is_legal = (
        request.prompt_token_ids
        and all(0 <= token_id < VOCAB_SIZE for token_id in request.prompt_token_ids)
        and request.max_tokens > 0
        and values.get("temperature", 0.0) >= 0
        and values.get("top_k", 0) >= 0
        and 0 <= values.get("top_p", 1.0) <= 1
        and values.get("n", 1) > 0
        and values.get("repetition_penalty", 1.0) > 0
        and values.get("min_tokens", 0) >= 0
        and all(token_id < VOCAB_SIZE for token_id in values.get("allowed_token_ids") or ())
        and all(token_id < VOCAB_SIZE for token_id, _ in values.get("logit_bias") or ())
    )
    return None if is_legal else "illegal"


def output(request_id: str, *token_ids: int, reason: str | None = None, **fields: Any) -> EngineOutput:
    """Makes the output of a request with one answer."""
    return EngineOutput(request_id, (EngineSample(token_ids, reason, **fields),))


def trial_of(
    requests: Sequence[EngineRequest],
    outputs: Sequence[EngineOutput],
    row_of: RowOf | None = scripted_row,
    *,
    bound: float = BOUND,
    vocab_size: int | None = None,
    eos_token_ids: tuple[int, ...] = EOS_TOKEN_IDS,
    again: Sequence[EngineOutput] | None = None,
    **fields: Any,
) -> Trial:
    """Makes a trial out of what an engine is said to have given; fields of declarations go there.

    Args:
        requests: What was asked.
        outputs: What came together.
        row_of: The referee's script; None for no referee.
        bound: What rounding may do.
        vocab_size: Number of token ids; that of the script's rows unless given, and unknown without a script.
        eos_token_ids: What ends a request.
        again: What came the second time; the same unless given.
        **fields: `backwards` and `alone` are runs, all others fields of the declaration.
    """
    backwards, alone = fields.pop("backwards", None), fields.pop("alone", {})
    return Trial(
        EngineScenario(tuple(requests), family=None),
        declare(**fields),
        None if row_of is None else ScriptedReferee(row_of, bound),
        eos_token_ids,
        vocab_size or (None if row_of is None else len(row_of((0,)))),
        EngineRun(tuple(outputs)),
        EngineRun(tuple(outputs if again is None else again)),
        None if backwards is None else EngineRun(tuple(backwards)),
        {name: EngineRun((its,)) for name, its in alone.items()},
    )


@pytest.fixture(scope="session", name="declare")
def _declare():
    return declare


@pytest.fixture(scope="session", name="output")
def _output():
    return output


@pytest.fixture(scope="session", name="trial_of")
def _trial_of():
    return trial_of


@pytest.fixture(scope="session", name="scripted_engine")
def _scripted_engine() -> Callable[..., EngineAdapter]:
    return ScriptedEngine


@pytest.fixture(scope="session", name="scripted_referee")
def _scripted_referee():
    return ScriptedReferee


@pytest.fixture(scope="session", name="scripted_row")
def _scripted_row():
    return scripted_row


@pytest.fixture(scope="session")
def scripted_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint folder that says what the script's vocabulary and ends are."""
    folder = tmp_path_factory.mktemp("script")
    config = {"vocab_size": VOCAB_SIZE, "eos_token_id": list(EOS_TOKEN_IDS), "max_position_embeddings": 200}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="session")
def refused() -> type[Refused]:
    """What an adapter raises where its engine takes no model."""
    return Refused
