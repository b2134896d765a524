"""Does an engine refuse what cannot be run, and goes on as if nothing had been?"""

from collections.abc import Iterator, Mapping
from typing import Any

from oracle.contract.drawing import Limits
from oracle.contract.findings import Finding, Findings, Kind
from oracle.engines.adapter import EngineAdapter, Refused
from oracle.engines.declaration import EngineDeclaration
from oracle.engines.messages import EngineOutput, EngineRequest
from oracle.errors import EngineRaised

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
    yield "max_tokens 0", EngineRequest("illegal", _PROMPT, 0)
    for name, values in _ILLEGAL_VALUES.items():
        if name in declaration.parameters:
            for value in values:
                yield f"{name} {value}", EngineRequest("illegal", _PROMPT, _MAX_TOKENS, _parameters(name, value))


def _parameters(name: str, value: Any) -> dict[str, Any]:
    is_for_draws = name in ("top_k", "top_p", "min_p")
    return {name: value, **({"temperature": 1.0} if is_for_draws else {})}


def check_refusals(
    engine: EngineAdapter, declaration: EngineDeclaration, limits: Limits, findings: Findings
) -> list[tuple[Finding, EngineRequest]]:
    """Runs what cannot be run, each followed by what can; gives what was found, with the request that shows it.

    Raises:
        EngineError: The engine crashed, hung, or answered with something else.
    """
    plain = EngineRequest("plain", _PROMPT, _MAX_TOKENS)
    expected = engine.run([plain]).outputs
    found = []
    for what, request in illegal_requests(declaration, limits):
        findings.see("refusals")
        words = _words_of_success(engine, request)
        if words is not None:
            message = f"{what} was not refused: {words}"
            finding = Finding("refusals", Kind.WRONG, message, request.request_id, blame=(what,))
            found.append((finding, request))
        if engine.run([plain]).outputs != expected:
            message = f"after {what}, a plain request gives something else than before"
            finding = Finding("refusals", Kind.WRONG, message, request.request_id, blame=("afterwards",))
            found.append((finding, request))
    return found


def _words_of_success(engine: EngineAdapter, request: EngineRequest) -> str | None:
    """Tells what an engine gave for a request that it should have refused; None where it refused."""
    try:
        run = engine.run([request])
    except (EngineRaised, Refused, ValueError, TypeError, IndexError, KeyError, RuntimeError, AssertionError):
        return None  # whatever it raised, it did not pretend
    if not run.outputs:
        return "no output came at all"
    return _words_of(run.outputs[0], request)


def _words_of(output: EngineOutput, request: EngineRequest) -> str | None:
    if output.refused is not None:
        return None
    tokens = [list(sample.token_ids) for sample in output.samples]
    if request.max_tokens == 0 and not any(tokens):
        return None  # none were asked for, and none came
    reasons = [sample.finish_reason for sample in output.samples]
    return f"tokens {tokens}, ended with {reasons}"
