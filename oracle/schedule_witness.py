"""Which features did a schedule really have? Counted from what the engine did, not from what was drawn."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from oracle.drive import Drive, DrivenRequest
from oracle.scripted_scheduler import ScriptedScheduler

FEATURES = ("preemption", "swap", "split", "hit", "copy on write", "eviction", "abort", "fork")
"""What a schedule may have, each of which has to come up often."""

PAIRS = ("seed × chunk", "n × hit × preemption", "prompt_logprobs × chunk × hit", "full swap → recompute")
"""Features that have gone wrong together in real engines, each of which has to come up."""

SPECULATIVE_FEATURES = ("accept", "reject", "bonus", "empty proposal", "lost block", "end inside a draft")
"""What a schedule may have where tokens are guessed: some stay, some do not, all stay, none was there to run, a block
was reserved for rejected ones only, and a right guess ended the request."""


def features_of(drive: Drive) -> set[str]:
    """Gives the features and pairs that a run had."""
    stats = drive.core.stats()
    driven = [own for own in drive.driven if own.states]
    split = [own for own in driven if own.is_split]
    scheduler = drive.core.scheduler
    preemptions, hit = (
        (scheduler.preemptions, scheduler.hit) if isinstance(scheduler, ScriptedScheduler) else ([], set())
    )
    verified = scheduler.verified if isinstance(scheduler, ScriptedScheduler) else []
    is_seen_by_name = {
        "preemption": stats.num_preemptions,
        "swap": stats.num_swaps,
        "split": any(own.is_split for own in driven),
        "hit": stats.num_hit_tokens,
        "copy on write": stats.num_copied_blocks,
        "eviction": stats.num_evicted_blocks,
        "abort": any(own.was_aborted for own in driven),
        "fork": stats.num_forks,
        "seed × chunk": any(own.request.params.seed is not None for own in split),
        "n × hit × preemption": any(
            len(own.states) > 1 and not hit.isdisjoint(own.states) and _was_preempted(own) for own in driven
        ),
        "prompt_logprobs × chunk × hit": any(
            own.request.params.prompt_logprobs is not None and not hit.isdisjoint(own.states) for own in split
        ),
        "full swap → recompute": any(own.wanted_swap and own.num_lost_tokens for own in preemptions),
        "accept": any(own.num_rejected < own.num_drafted for own in verified),
        "reject": any(own.num_rejected for own in verified),
        "bonus": stats.num_bonus_tokens,
        "empty proposal": stats.num_empty_drafts,
        "lost block": any(own.num_lost_blocks for own in verified),
        "end inside a draft": any(own.ends_inside for own in verified),
    }
    return {name for name, is_seen in is_seen_by_name.items() if is_seen}


def _was_preempted(own: DrivenRequest) -> bool:
    return any(state.num_preemptions for state in own.states)


@dataclass
class WitnessTable:
    """How many schedules of a run had each feature, and in how many each parameter showed its effect.

    Attributes:
        num_schedules: Schedules that ran.
        num_requests: Their requests.
        num_steps: Their steps.
        count_by_feature: Schedules with a feature or pair.
        count_by_effect: Schedules in which a parameter changed an output, and the output was right.
    """

    num_schedules: int = 0
    num_requests: int = 0
    num_steps: int = 0
    count_by_feature: Counter[str] = field(default_factory=Counter)
    count_by_effect: Counter[str] = field(default_factory=Counter)

    def see(self, drive: Drive, effects: Iterable[str] = ()) -> None:
        """Takes in one run."""
        self.num_schedules += 1
        self.num_requests += len(drive.driven)
        self.num_steps += drive.num_steps
        self.count_by_feature.update(features_of(drive))
        self.count_by_effect.update(effects)

    def share(self, feature: str) -> float:
        """Gives the share of schedules with a feature."""
        return self.count_by_feature[feature] / max(1, self.num_schedules)

    def missing(self, features: Iterable[str]) -> tuple[str, ...]:
        """Gives those of some features that never came up, so that nothing was shown of them."""
        return tuple(name for name in features if not self.count_by_feature[name])
