"""A small schedule in which everything befalls requests and blocks that can, for whoever watches or shows one."""

from oracle.checkpoint_spec import CheckpointSpec
from oracle.engine_spec import EngineSpec, StepScript
from oracle.sampling_spec import SamplingSpec
from oracle.scenario import RequestSpec, Scenario

SCHEDULE = Scenario(
    requests=(
        RequestSpec((1, 2, 3, 4, 5, 6, 7, 8), max_tokens=4, ignore_eos=True, sampling=SamplingSpec(n=2)),
        RequestSpec((1, 2, 3, 4, 9, 8), max_tokens=3, ignore_eos=True, arrival=2),
    ),
    checkpoint=CheckpointSpec(num_layers=2, num_heads=2, num_kv_heads=1, vocab_size=64),
    engine=EngineSpec(block_size=2, enable_prefix_caching=True),
    script=(StepScript(caps=(3,)), StepScript(), StepScript(), StepScript(swap=(0,)), StepScript(recompute=(0,))),
)
"""Samples that share, a prompt in chunks, a prefix that is found, a swap and a preemption."""
