"""Does an engine refuse what cannot be run, and goes on as if nothing had been?"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from oracle.contract.drawing import Limits
from oracle.contract.findings import Finding, Findings, Kind
from oracle.contract.processing import USUAL_FILTERS
from oracle.engines.adapter import EngineAdapter
from oracle.engines.declaration import EngineDeclaration
from oracle.engines.messages import EngineOutput, EngineRequest
from oracle.errors import EngineError, EngineRaised

_PROMPT = (5, 3, 8, 2)
_MAX_TOKENS = 4

_ILLEGAL_VALUES: Mapping[str, tuple[Any, ...]] = {
    "temperature": (-1.0,),
    "top_k": (-5,),
    "top_p": (1.5, -0.5),
    "min_p": (1.5, -0.5),
    "n": (0,),
    "repetition_penalty": (0.0, -1.0),
    "min_tokens": (-1,),
    "allowed_token_ids": ([10**6],),
    "logit_bias": ([[10**6, 1.0]],),
}
"""Values that mean nothing; an engine that takes one does something else than it was asked for."""


def illegal_requests(declaration: EngineDeclaration, limits: Limits) -> Iterator[tuple[str, EngineRequest]]:
    """Gives requests that no engine can run, each with what is wrong with it."""
    yield "an empty prompt", EngineRequest("illegal", (), _MAX_TOKENS)
    if limits.is_known:
        yield "a token id beyond the vocabulary", EngineRequest("illegal", (5, limits.vocab_size, 3), _MAX_TOKENS)
    yield "a negative token id", EngineRequest("illegal", (5, -1, 3), _MAX_TOKENS)
    prompt = _prompt_of(declaration)
    yield "max_tokens 0", EngineRequest("illegal", prompt, 0)
    for name, values in _ILLEGAL_VALUES.items():
        if name in declaration.parameters:
            for value in values:
                yield f"{name} {value}", EngineRequest("illegal", prompt, _MAX_TOKENS, _parameters(name, value))


def _prompt_of(declaration: EngineDeclaration) -> tuple[int, ...]:
    """Gives a prompt that is long enough for an engine, so that it is not refused for that."""
    return _PROMPT + _PROMPT[:1] * (declaration.min_prompt_tokens - len(_PROMPT))


def _parameters(name: str, value: Any) -> dict[str, Any]:
    return {name: value, **({"temperature": 1.0} if name in USUAL_FILTERS else {})}


def check_refusals(
    engine: EngineAdapter,
    declaration: EngineDeclaration,
    limits: Limits,
    findings: Findings,
    reopen: Callable[[], object] | None = None,
) -> list[tuple[Finding, EngineRequest]]:
    """Runs what cannot be run, each followed by what can; gives what was found, with the request that shows it.

    Args:
        engine: The engine, which is open.
        declaration: What it says of itself.
        limits: Of the model.
        findings: Where is counted what was tried.
        reopen: Opens it again after it has failed; without one, nothing is tried after that.

    Raises:
        EngineError: It does not even answer a request that can be run, before all others.
    """
    plain = EngineRequest("plain", _prompt_of(declaration), _MAX_TOKENS)
    expected = engine.run([plain]).outputs
    found = []
    for what, request in illegal_requests(declaration, limits):
        findings.see("refusals")
        words, is_alive = _words_of_success(engine, what, request)
        if words is not None:
            found.append((Finding("refusals", Kind.WRONG, words, request.request_id, blame=(what,)), request))
        if is_alive:
            words, is_alive = _words_of_change(engine, what, plain, expected)
            if words is not None:
                finding = Finding("refusals", Kind.WRONG, words, request.request_id, blame=("afterwards",))
                found.append((finding, request))
        if not is_alive:
            if reopen is None:
                break
            reopen()
    return found


def _words_of_success(engine: EngineAdapter, what: str, request: EngineRequest) -> tuple[str | None, bool]:
    """Tells what an engine did with a request that it should have refused, if it did not, and whether it lives."""
    try:
        outputs = engine.run([request]).outputs
    except EngineRaised:
        return None, True  # whatever it raised, it did not pretend
    except EngineError as error:
        return f"{what} ended the engine: {error}", False
    words = _words_of(outputs[0], request) if outputs else "no output came at all"
    return None if words is None else f"{what} was not refused: {words}", True


def _words_of_change(
    engine: EngineAdapter, what: str, plain: EngineRequest, expected: tuple[EngineOutput, ...]
) -> tuple[str | None, bool]:
    """Tells how an engine is another one after something illegal, if it is, and whether it lives."""
    try:
        is_same = engine.run([plain]).outputs == expected
    except EngineError as error:
        return f"after {what}, a plain request fails: {error}", False
    return None if is_same else f"after {what}, a plain request gives something else than before", True


def _words_of(output: EngineOutput, request: EngineRequest) -> str | None:
    if output.refused is not None:
        return None
    tokens = [list(sample.token_ids) for sample in output.samples]
    if request.max_tokens == 0 and not any(tokens):
        return None  # none were asked for, and none came
    reasons = [sample.finish_reason for sample in output.samples]
    return f"tokens {tokens}, ended with {reasons}"
