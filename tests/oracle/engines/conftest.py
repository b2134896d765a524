"""A generated checkpoint, the contract's checks on one run, and requests in few words."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from oracle.checkpoints import CheckpointSpec, cached_checkpoint
from oracle.contract.findings import Findings
from oracle.contract.referee import ModelReferee
from oracle.contract.scenario import EngineScenario
from oracle.contract.session import EngineSession
from oracle.engines.adapter import EngineAdapter
from oracle.engines.messages import EngineRequest

PROMPT = (5, 3, 8, 2, 13, 21)

EOS = 7
CHECKPOINT = CheckpointSpec(
    hidden_size=32, intermediate_size=48, num_layers=1, head_dim=16, vocab_size=71, eos_token_ids=(EOS,)
)
"""As small as it can be while every fault still shows."""


def make_request(name: str = "r0", prompt: Sequence[int] = PROMPT, max_tokens: int = 3, **values: Any) -> EngineRequest:
    """A request; "arrival" and "abort_after" are its own, whatever else is named is a parameter."""
    own = {key: values.pop(key) for key in ("arrival", "abort_after") if key in values}
    return EngineRequest(name, tuple(prompt), max_tokens, values, **own)


@lru_cache(maxsize=4)
def _referee(folder: Path, dtype: str) -> ModelReferee:
    """One referee for all tests, which remembers what it was asked."""
    return ModelReferee(folder, dtype)


def find_wrong_checks(
    engine: EngineAdapter,
    *requests: EngineRequest,
    knobs: dict[str, Any] | None = None,
    before: Sequence[Sequence[EngineRequest]] = (),
) -> set[str]:
    """The names of all checks that find something wrong with an engine that runs these requests."""
    declaration = engine.declare()
    simplest = {name: values[0] for name, values in declaration.knobs.items()}
    knobs = simplest | (knobs or {})
    scenario = EngineScenario(requests, knobs=knobs, family=None, before=tuple(map(tuple, before)))
    findings = Findings()
    EngineSession(engine, declaration, folder=cached_checkpoint(CHECKPOINT), open_referee=_referee).judge(
        scenario, findings
    )
    return {finding.check for finding in findings.wrong()}


@pytest.fixture(scope="session")
def folder() -> Path:
    """The checkpoint that `wrong_checks` uses; token 7 is its EOS."""
    return cached_checkpoint(CHECKPOINT)


@pytest.fixture(scope="session")
def request_of() -> Callable[..., EngineRequest]:
    """Makes a request."""
    return make_request


@pytest.fixture(scope="session")
def wrong_checks() -> Callable[..., set[str]]:
    """Gives the names of all checks that find something wrong."""
    return find_wrong_checks


@pytest.fixture(scope="session")
def referee(folder) -> ModelReferee:
    """What the tokens of that checkpoint are judged by."""
    return _referee(folder, "float32")
