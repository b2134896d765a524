"""Is there exactly one output for each request, and is each of a form that means something?"""

import math
from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any

from oracle.contract.findings import Finding, Findings, Kind
from oracle.contract.trial import Trial
from oracle.engines.messages import EngineOutput, EngineRequest, EngineRun, EngineSample

POSITIVE_TOLERANCE = 1e-4
"""A log-probability may lie above 0 by what rounding does to a sum of probabilities."""

FINISH_REASONS = (None, "stop", "length", "abort")

Broken = set[tuple[str, str]]
"""Pairs of run and request whose output has no form that other checks could judge."""


def check_form(trial: Trial, findings: Findings) -> Broken:
    """Checks every output of every run; gives those that nothing else can be asked of."""
    broken: Broken = set()
    for name, requests, run in trial.runs():
        broken |= _check_belonging(name, requests, run, findings)
        output_by_id = {output.request_id: output for output in run.outputs if isinstance(output.request_id, str)}
        for request in requests:
            if (name, request.request_id) in broken:
                continue
            findings.see("form")
            fault = _fault_of(trial, request, output_by_id[request.request_id])
            if fault is not None:
                broken.add((name, request.request_id))
                findings.add(Finding("form", Kind.WRONG, f"run {name}: {fault[0]}", request.request_id, blame=fault[1]))
    return broken


def _check_belonging(name: str, requests: Sequence[EngineRequest], run: EngineRun, findings: Findings) -> Broken:
    """Checks that the outputs are those of the requests, one each, in their order."""
    asked = [request.request_id for request in requests]
    names = [output.request_id for output in run.outputs]
    given = [name if isinstance(name, str) else repr(name) for name in names]  # whatever came as a name
    if asked == given:
        return set()
    missing = sorted(set(asked) - set(given))
    doubled = sorted({request_id for request_id in given if given.count(request_id) > 1})
    others = sorted(set(given) - set(asked))
    if missing or doubled or others:
        words = f"missing {missing}, more than once {doubled}, never asked for {others}"
        blame = "missing" if missing else "duplicate" if doubled else "unknown"
    else:
        words, blame = f"outputs of {given} for requests {asked}", "order"
    findings.add(Finding("form", Kind.WRONG, f"run {name}: {words}", blame=(blame,)))
    return {(name, request_id) for request_id in (*missing, *doubled)}


Fault = tuple[str, tuple[str, ...]]
"""What is wrong with the form of an output, and what makes the difference."""


def _fault_of(trial: Trial, request: EngineRequest, output: EngineOutput) -> Fault | None:
    if output.refused is not None:
        return f"refused, though its declaration allows it: {output.refused}", ("refused",)
    num_wanted = int(request.parameters.get("n", 1))
    if len(output.samples) != num_wanted:
        return f"{len(output.samples)} answers, and {num_wanted} were asked for", ("n",)
    for sample in output.samples:
        fault = _fault_of_tokens(trial, request, sample) or _fault_of_scores(trial, request, sample)
        if fault is not None:
            return fault
    wants_prompt = request.parameters.get("prompt_logprobs") is not None
    return _fault_of_prompt_scores(request, output.prompt_logprobs) if wants_prompt else None


def _fault_of_prompt_scores(
    request: EngineRequest, entries: Sequence[Mapping[int, float] | None] | None
) -> Fault | None:
    """Finds scores of the prompt that are missing, but for the first token's, or no log-probabilities."""
    if entries is None or len(entries) != len(request.prompt_token_ids):
        number = None if entries is None else len(entries)
        return f"prompt_logprobs gave {number} entries for {len(request.prompt_token_ids)} tokens", ("prompt_logprobs",)
    lacks = [place for place, entry in enumerate(entries) if place and entry is None]
    if lacks:
        return f"prompt_logprobs gave nothing for token {lacks[0]} of the prompt", ("prompt_logprobs",)
    values = [value for entry in entries if entry is not None for value in entry.values()]
    return _fault_of_values(values, "prompt_logprobs")


def _fault_of_tokens(trial: Trial, request: EngineRequest, sample: EngineSample) -> Fault | None:
    strange = [token_id for token_id in sample.token_ids if not isinstance(token_id, Integral)]
    if strange:
        return f"{strange[0]!r} stands for a token, and is no whole number", ("token_ids",)
    most = float("inf") if trial.vocab_size is None else trial.vocab_size
    outside = [token_id for token_id in sample.token_ids if not 0 <= token_id < most]
    if outside:
        return f"token {outside[0]} of a vocabulary of {most}", ("vocabulary",)
    if sample.finish_reason not in FINISH_REASONS:
        return f"finish reason {sample.finish_reason!r} is none of {FINISH_REASONS}", ("finish_reason",)
    may_be_empty = request.abort_after is not None or not trial.declaration.shows_stop_token
    if not sample.token_ids and not may_be_empty:
        return f"no token came, and it ended with {sample.finish_reason!r}", ("empty",)
    return None


def _fault_of_scores(trial: Trial, request: EngineRequest, sample: EngineSample) -> Fault | None:
    """Finds scores that are missing, of another number, or no log-probabilities."""
    num_tokens = len(sample.token_ids)
    wants_logprobs = request.parameters.get("logprobs") is not None
    for name, values, is_wanted in (
        ("logprobs", sample.logprobs, wants_logprobs and "logprobs" in trial.declaration.capabilities),
        ("top_logprobs", sample.top_logprobs, wants_logprobs and "top_logprobs" in trial.declaration.capabilities),
        ("logits", sample.logits, bool(request.parameters.get("logits"))),
    ):
        if is_wanted and (values is None or len(values) != num_tokens):
            return f"{name} gave {None if values is None else len(values)} entries for {num_tokens} tokens", (name,)
    fault = _fault_of_values(sample.logprobs or (), "logprobs", may_be_infinite=False)
    listed = [value for entry in sample.top_logprobs or () for value in entry.values()]
    fault = fault or _fault_of_values(listed, "top_logprobs")
    for row in sample.logits or ():
        if trial.vocab_size not in (None, len(row)) or any(map(_is_no_number, row)):
            return f"a row of {len(row)} logits for {trial.vocab_size} token ids, or with NaN", ("logits",)
    return fault


def _fault_of_values(values: Sequence[Any], name: str, *, may_be_infinite: bool = True) -> Fault | None:
    for value in values:
        if _is_no_number(value) or value > POSITIVE_TOLERANCE or (math.isinf(value) and not may_be_infinite):
            return f"{name} holds {value!r}, which is no log-probability", (name,)
    return None


def _is_no_number(value: Any) -> bool:
    """Tells whether something that came from an engine, which may be anything, is no number or NaN."""
    return not isinstance(value, Real) or math.isnan(value)
