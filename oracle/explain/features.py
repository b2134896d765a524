"""How is each feature of a schedule of `refinfer` turned off?"""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

from oracle.checkpoints import CheckpointSpec
from oracle.engine_spec import EngineSpec, StepScript
from oracle.explain.feature_search import Switch
from oracle.sampling_spec import SamplingSpec
from oracle.scenario import RequestSpec, Scenario

_ENGINE, _STEP, _SAMPLING = EngineSpec(), StepScript(), SamplingSpec()


def switches_of(scenario: Scenario, request: int | None) -> list[Switch[Scenario]]:
    """Gives the switches of all features that a scenario may have.

    Args:
        scenario: The scenario.
        request: The request that fails; None where it is not known.
    """
    sampling = dict.fromkeys(name for request in scenario.requests for name in request.sampling.named)
    found = [
        Switch("other requests", "the request that fails runs by itself", lambda own: _alone(own, request)),
        Switch("batching", "one request at a time", lambda own: replace(own, max_num_seqs=1)),
        Switch("chunking", "no step runs a part of a prompt", _unchunked),
        Switch("preemption", "nobody is preempted, and there are blocks enough", _unpreempted),
        Switch("swap", "preempted requests recompute", _unswapped),
        Switch("prefix sharing", "enable_prefix_caching is off", _engine("enable_prefix_caching")),
        Switch("cache salts", "no request has a salt", _requests(cache_salt=None)),
        Switch("small blocks", "block_size is 16", _engine("block_size")),
        Switch("placement", "the lowest blocks come first", _engine("placement_seed")),
        Switch("speculation", "nothing guesses", _engine("speculative")),
        Switch("length limit", "max_model_len ends no request", _engine("max_model_len_cut")),
        Switch("scheduling order", "those that run come first", _engine("scheduling")),
        Switch("arrivals", "all requests come at the start", _requests(arrival=0)),
        Switch("aborts", "no request is aborted", _requests(abort_step=None)),
        Switch("held admission", "the policy lets requests in", _script("admit")),
        Switch("row order", "rows are not rotated", _script("rotation")),
        Switch("decoding", "every request emits one token", _requests(max_tokens=1)),
        *(Switch(f"sampling: {name}", f"{name} is at its default", _sampling(name)) for name in sampling),
    ]
    if scenario.checkpoint is not None and not scenario.is_symbolic:
        found.append(Switch("dtype", "dtype is float32", lambda own: replace(own, dtype="float32")))
        found += [Switch(f"model: {name}", f"{name} is at its default", _model(name)) for name in _MODEL_FIELDS]
    return found


_MODEL_FIELDS = tuple(
    field.name
    for field in fields(CheckpointSpec)
    if field.name in ("num_kv_heads", "rope_type", "tie_word_embeddings", "attention_bias", "mlp_bias")
)


def _alone(scenario: Scenario, request: int | None) -> Scenario:
    """Gives the scenario of one request; places of a script may mean another request then."""
    if len(scenario.requests) == 1 or request is None:
        return scenario
    return scenario.alone(min(request, len(scenario.requests) - 1))


def _requests(**changes: Any) -> Callable[[Scenario], Scenario]:
    def off(scenario: Scenario) -> Scenario:
        return replace(scenario, requests=tuple(replace(request, **changes) for request in scenario.requests))

    return off


def _sampling(name: str) -> Callable[[Scenario], Scenario]:
    default = getattr(_SAMPLING, name)

    def without(request: RequestSpec) -> RequestSpec:
        return replace(request, sampling=replace(request.sampling, **{name: default}))

    return lambda scenario: replace(scenario, requests=tuple(map(without, scenario.requests)))


def _engine(name: str) -> Callable[[Scenario], Scenario]:
    default = getattr(_ENGINE, name)
    return lambda scenario: replace(scenario, engine=replace(scenario.engine, **{name: default}))


def _script(*names: str) -> Callable[[Scenario], Scenario]:
    defaults = {name: getattr(_STEP, name) for name in names}
    return lambda scenario: replace(scenario, script=tuple(replace(step, **defaults) for step in scenario.script))


def _model(name: str) -> Callable[[Scenario], Scenario]:
    def off(scenario: Scenario) -> Scenario:
        own = scenario.checkpoint
        if own is None:
            return scenario
        change: dict[str, Any] = {name: getattr(CheckpointSpec(), name)}
        if name == "num_kv_heads":
            change = {name: own.num_heads}
        return replace(scenario, checkpoint=replace(own, **change))

    return off


def _unchunked(scenario: Scenario) -> Scenario:
    engine = replace(scenario.engine, max_num_batched_tokens=_ENGINE.max_num_batched_tokens)
    requests = tuple(replace(request, cuts=()) for request in scenario.requests)
    return _script("caps")(replace(scenario, engine=engine, requests=requests))


def _unpreempted(scenario: Scenario) -> Scenario:
    engine = replace(scenario.engine, num_spare_blocks=None)
    return _script("recompute", "swap")(replace(scenario, engine=engine))


def _unswapped(scenario: Scenario) -> Scenario:
    script = tuple(replace(step, recompute=(*step.recompute, *step.swap), swap=()) for step in scenario.script)
    engine = replace(scenario.engine, preemption=_ENGINE.preemption, num_swap_blocks=None)
    return replace(scenario, engine=engine, script=script)
