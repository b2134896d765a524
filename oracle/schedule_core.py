"""Engines for schedules: the shipped parts around a scheduler that follows a scenario's script."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from oracle.errors import ScenarioError
from oracle.lone_answer import SampleRun, Surroundings, answer_alone
from oracle.scenario import Scenario
from oracle.schedule_proposers import model_proposer, symbolic_proposer
from oracle.scripted_scheduler import ScriptedScheduler
from oracle.subjects import options_of
from oracle.symbolic import EOS_TOKEN_IDS, SymbolicTokenizer
from oracle.symbolic_runners import SymbolicContinuousRunner, SymbolicPagedRunner, SymbolicRecomputeRunner
from refinfer.cache import CausalAttentionView
from refinfer.cache.block_table import BlockTable
from refinfer.config import EngineConfig
from refinfer.config.engine_config import engine_config
from refinfer.engine import LoadedModel
from refinfer.engine.assembly import make_runner, make_scheduler
from refinfer.engine.core import EngineCore
from refinfer.engine.model_runner import ModelRunner
from refinfer.engine.speculation import Speculation
from refinfer.model import Llama
from refinfer.model.model_input import RowLogits
from refinfer.scheduler import BlockSpace, ContinuousScheduler, Request, RequestQueues
from refinfer.speculative import Proposer

SYMBOLIC_TOKENIZER = SymbolicTokenizer()

FIRST_FREE_SEED = 1000
"""Requests without a seed of their own get fixed ones in the harness, so that a saved case runs the same again."""


def requests_of(scenario: Scenario) -> list[Request]:
    """Makes the requests of a scenario as an engine's core takes them.

    Where a model guesses, all of them are seeded: without a seed, a guess that was drawn decides which token comes,
    though not with what probability, and nothing could be held to the request alone.
    """
    has_draft_model = scenario.engine.speculative in ("self", "draft")
    requests = []
    for place, spec in enumerate(scenario.requests):
        seed = FIRST_FREE_SEED + place if spec.sampling.seed is None else spec.sampling.seed
        params = replace(spec.params, seed=seed) if has_draft_model else spec.params
        requests.append(Request(str(place), None, spec.prompt_token_ids, params, seed, spec.cache_salt))
    return requests


def num_blocks_of(scenario: Scenario) -> int:
    """Gives the size of the pool."""
    engine = scenario.engine
    num_needed = BlockTable.blocks_for(scenario.max_model_len, engine.block_size)
    if engine.num_spare_blocks is not None:
        return num_needed + engine.num_spare_blocks
    return num_needed * (1 + sum(spec.sampling.n for spec in scenario.requests))


def block_space_of(scenario: Scenario, model_key: str = "") -> BlockSpace:
    """Makes the blocks of a scenario's engine."""
    engine = scenario.engine
    num_blocks = num_blocks_of(scenario)
    return BlockSpace(
        num_blocks,
        engine.block_size,
        enable_prefix_caching=engine.enable_prefix_caching,
        num_swap_blocks=num_blocks if engine.num_swap_blocks is None else engine.num_swap_blocks,
        shuffle_seed=engine.placement_seed,
        model_key=model_key,
    )


def scheduler_of(scenario: Scenario, config: EngineConfig, space: BlockSpace | None) -> RequestQueues:
    """Makes the scheduler of a scenario's engine: the shipped one, scripted where it leaves a script something to say.

    Raises:
        InvariantError: The cache has no scheduler.
    """
    engine = scenario.engine
    shipped = make_scheduler(config, space)
    if not isinstance(shipped, ContinuousScheduler):
        return shipped
    return ScriptedScheduler(
        scenario.script,
        scenario.max_num_seqs,
        engine.max_num_batched_tokens,
        blocks=space,
        is_prefill_first=engine.scheduling == "prefill_first",
        preempts_by_swap=engine.preemption == "swap",
    )


def symbolic_core(scenario: Scenario, mode: str, expected: Sequence[Sequence[SampleRun]] | None = None) -> EngineCore:
    """Makes an engine over the symbolic model, in the mode of that name.

    Args:
        scenario: How it is set up.
        mode: Its name.
        expected: What every sample gives alone, for guesses that know it; None guesses nothing.

    Raises:
        ScenarioError: The symbolic model has no such mode.
    """
    space = block_space_of(scenario) if mode == "paged" else None
    runner = _symbolic_runner(mode, space)
    return EngineCore(
        scheduler_of(scenario, engine_config(cache=mode, max_num_seqs=scenario.max_num_seqs), space),
        runner,
        eos_token_ids=EOS_TOKEN_IDS,
        max_model_len=scenario.max_model_len,
        tokenizer=SYMBOLIC_TOKENIZER,
        speculation=None
        if expected is None or space is None
        else _speculation(scenario, symbolic_proposer(scenario, expected), EOS_TOKEN_IDS),
    )


def _speculation(scenario: Scenario, proposer: Proposer | None, eos_token_ids: frozenset[int]) -> Speculation | None:
    if proposer is None:
        return None
    return Speculation(
        proposer,
        scenario.engine.num_speculative_tokens,
        eos_token_ids=eos_token_ids,
        max_model_len=scenario.max_model_len,
    )


def _symbolic_runner(mode: str, space: BlockSpace | None) -> ModelRunner:
    match mode:
        case "none":
            return SymbolicRecomputeRunner()
        case "static" | "continuous":
            return SymbolicContinuousRunner()
        case "paged" if space is not None:
            return SymbolicPagedRunner(space.pool.num_blocks, space.block_size)
        case _:
            message = f"mode {mode!r} has no runner on the symbolic model; those that have one are none, static, "
            message += "continuous, and paged where there are blocks"
            raise ScenarioError(message, mode=mode)


def model_core(
    loaded: LoadedModel,
    scenario: Scenario,
    mode: str,
    expected: Sequence[Sequence[SampleRun]] | None = None,
    draft_model: Llama | None = None,
) -> EngineCore:
    """Makes an engine over a model, in the mode of that name.

    Args:
        loaded: The model.
        scenario: How the engine is set up.
        mode: Its name.
        expected: What every sample gives alone, for guesses that know it; None guesses nothing.
        draft_model: The other model that guesses, where the scenario has one.
    """
    config = engine_config(max_num_seqs=scenario.max_num_seqs, dtype=scenario.dtype, **options_of(mode))
    space = block_space_of(scenario, loaded.name) if config.cache == "paged" else None
    return EngineCore(
        scheduler_of(scenario, config, space),
        make_runner(config, loaded.model, scenario.max_model_len, space),
        eos_token_ids=frozenset(loaded.eos_token_ids),
        max_model_len=scenario.max_model_len,
        tokenizer=loaded.tokenizer,
        speculation=None
        if expected is None or space is None
        else _speculation(
            scenario,
            model_proposer(loaded, scenario, space.pool.num_blocks, expected, draft_model),
            frozenset(loaded.eos_token_ids),
        ),
    )


def samples_alone(loaded: LoadedModel, scenario: Scenario) -> list[list[SampleRun]]:
    """Gives what each sample of every request gives alone, every token from one pass without a cache."""
    around = Surroundings(frozenset(loaded.eos_token_ids), scenario.max_model_len, loaded.tokenizer)

    def next_logits(token_ids: Sequence[int], num_wanted: int) -> RowLogits:
        count = len(token_ids)
        view = CausalAttentionView([count])
        wanted = list(range(count - num_wanted, count))
        logits = loaded.model.forward(torch.tensor(list(token_ids)), torch.arange(count), view, wanted)
        rows: RowLogits = (logits if logits.dtype in (torch.float32, torch.float64) else logits.float()).numpy()
        return rows

    return [
        [answer_alone(request, index, next_logits, around) for index in range(request.params.n)]
        for request in requests_of(scenario)
    ]
