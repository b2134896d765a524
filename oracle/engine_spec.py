"""How an engine of a scenario is set up, and what its scheduler is made to do, as deviations from the simplest run."""

from dataclasses import dataclass

from oracle.errors import ScenarioError
from oracle.spec_checks import are, check_choice, check_count, check_flag, check_ids
from refinfer.config.engine_config import PREEMPTIONS, SCHEDULINGS

SPECULATIVES = ("ngram", "scripted", "self", "draft")
"""What may guess tokens: a look-up, a script that knows the right ones, the model itself, another model."""

GUESSES = ("right", "wrong", "end", "nothing")
"""What a script guesses for a place of the output: the right token or the one after it, an end-of-sequence token, or
nothing there and behind it."""


@dataclass(frozen=True)
class EngineSpec:
    """Settings of an engine; a mode takes those that mean something to it.

    Attributes:
        max_num_batched_tokens: Most tokens in one step.
        scheduling: Who comes first, one of `SCHEDULINGS`.
        block_size: Token places of a block.
        num_spare_blocks: Blocks beyond the fewest that hold the longest request; None for more than enough.
        enable_prefix_caching: Whether requests share the blocks of a common prefix.
        preemption: How a preempted request comes back, one of `PREEMPTIONS`.
        num_swap_blocks: Blocks that host memory takes; None for as many as the pool has.
        placement_seed: Seed of a random placement of blocks; None for the lowest first.
        speculative: What guesses tokens, one of `SPECULATIVES`; None for nothing.
        num_speculative_tokens: Most tokens that are guessed for a request in one step.
        guesses: What a scripted proposer guesses, one of `GUESSES` for each place of the output, over and over.
        max_model_len_cut: By how many tokens `max_model_len` falls short of the longest request, so that this one
            ends by it; see `Scenario.max_model_len`.

    Raises:
        ScenarioError: A value is of another type or out of range.
    """

    max_num_batched_tokens: int = 256
    scheduling: str = SCHEDULINGS[0]
    block_size: int = 16
    num_spare_blocks: int | None = None
    enable_prefix_caching: bool = False
    preemption: str = PREEMPTIONS[0]
    num_swap_blocks: int | None = None
    placement_seed: int | None = None
    speculative: str | None = None
    num_speculative_tokens: int = 4
    guesses: tuple[str, ...] = ("right",)
    max_model_len_cut: int = 0

    def __post_init__(self) -> None:
        check_count("max_num_batched_tokens", self.max_num_batched_tokens)
        check_count("block_size", self.block_size)
        check_choice("scheduling", self.scheduling, SCHEDULINGS)
        check_choice("preemption", self.preemption, PREEMPTIONS)
        check_choice("speculative", self.speculative, (None, *SPECULATIVES))
        check_count("num_speculative_tokens", self.num_speculative_tokens)
        if not are(str, self.guesses) or not self.guesses:
            message = f"guesses is {self.guesses!r}; it must hold at least one of {', '.join(map(repr, GUESSES))}"
            raise ScenarioError(message, name="guesses")
        for guess in self.guesses:
            check_choice("guess", guess, GUESSES)
        check_flag("enable_prefix_caching", self.enable_prefix_caching)
        check_count("max_model_len_cut", self.max_model_len_cut, 0)
        for name in ("num_spare_blocks", "num_swap_blocks", "placement_seed"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name), 0)


@dataclass(frozen=True)
class StepScript:
    """What a scheduler is made to do in one step; without deviations the shipped policy decides.

    Requests are meant by their place among those that run, wrapped around, so that every script is legal.

    Attributes:
        recompute: Who is preempted before anything else and recomputes; counted from the newest, which is 0.
        swap: Who is preempted after them and is swapped out, if there is room.
        caps: For each request that runs, oldest first, the most tokens it may run; 0 passes it over. The newest
            ones may be left out, and run what the budget leaves them.
        admit: How many of those that wait may come in; None for all that the policy would let in.
        rotation: By how many places the rows are rotated.

    Raises:
        ScenarioError: A value is of another type or out of range.
    """

    recompute: tuple[int, ...] = ()
    swap: tuple[int, ...] = ()
    caps: tuple[int, ...] = ()
    admit: int | None = None
    rotation: int = 0

    def __post_init__(self) -> None:
        for name in ("recompute", "swap", "caps"):
            check_ids(name, getattr(self, name))
            for value in getattr(self, name):
                check_count(name, value, 0)
        if self.admit is not None:
            check_count("admit", self.admit, 0)
        check_count("rotation", self.rotation, 0)

    @property
    def is_policy(self) -> bool:
        """Whether the shipped policy decides."""
        return self == _POLICY


_POLICY = StepScript()
