"""Static against continuous batching without a model: how many steps, and how many of their rows emit a token?"""

from dataclasses import dataclass

from oracle.chain_runner import VOCAB_SIZE, ChainRunner
from refinfer import SamplingParams
from refinfer.engine.core import EngineCore
from refinfer.engine.engine import make_states
from refinfer.scheduler import ContinuousScheduler, Request, RequestQueues, StaticScheduler
from tests.benchmarks.workloads import Workload


@dataclass(frozen=True)
class Simulation:
    """What a run without a model took.

    Attributes:
        num_steps: Steps.
        num_rows: Rows of all steps together, also those of requests that have ended and keep their place.
        num_emitted: Rows that emitted a token.
    """

    num_steps: int
    num_rows: int
    num_emitted: int

    @property
    def share(self) -> float:
        """Rows that emitted a token, over all rows."""
        return self.num_emitted / self.num_rows


def schedulers(max_num_seqs: int, max_num_batched_tokens: int = 512) -> dict[str, RequestQueues]:
    """Gives a static and a continuous scheduler by name."""
    return {
        "static": StaticScheduler(max_num_seqs),
        "continuous": ContinuousScheduler(max_num_seqs, max_num_batched_tokens),
    }


def simulate(work: Workload, scheduler: RequestQueues) -> Simulation:
    """Runs work to its end."""
    core = EngineCore(scheduler, ChainRunner(), eos_token_ids=frozenset(), max_model_len=work.longest)
    for index, (prompt, most) in enumerate(zip(work.prompts, work.max_tokens, strict=True)):
        params = SamplingParams(temperature=0.0, max_tokens=most, ignore_eos=True)
        folded = tuple(token_id % VOCAB_SIZE for token_id in prompt)
        for state in make_states(Request(str(index), None, folded, params)):
            core.add(state)
    num_rows = 0
    while core.has_unfinished_requests():
        core.step()
        num_rows += len(scheduler.running) if isinstance(scheduler, StaticScheduler) else len(core.events[-1].rows)
    stats = core.stats()
    return Simulation(stats.num_steps, num_rows, stats.num_emitted_tokens)
