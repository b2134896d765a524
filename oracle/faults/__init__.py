"""Planted bugs by name: each is one that engines shipped, and each must be caught."""

from oracle.faults import (
    block_faults,
    cache_faults,
    drafting_faults,
    ending_faults,
    loader_faults,
    mask_faults,
    model_faults,
    numerics_faults,
    paged_faults,
    penalty_faults,
    picking_faults,
    position_faults,
    preemption_faults,
    prefix_faults,
    rejection_faults,
    sampling_faults,
    scheduler_faults,
    speculative_faults,
    text_faults,
)
from oracle.faults.registry import Area, Fault

_MODULES_OF_SERVING = (
    block_faults,
    prefix_faults,
    scheduler_faults,
    preemption_faults,
    paged_faults,
    picking_faults,
    penalty_faults,
    ending_faults,
    speculative_faults,
    rejection_faults,
    drafting_faults,
)

FAULTS = {
    fault.name: fault
    for module in (
        model_faults,
        position_faults,
        mask_faults,
        cache_faults,
        loader_faults,
        sampling_faults,
        text_faults,
        numerics_faults,
        *_MODULES_OF_SERVING,
    )
    for fault in module.FAULTS
}
"""Every planted fault by its switch."""

LAW_FAULTS = tuple(fault.name for fault in FAULTS.values() if fault.area is Area.LAW)
"""Those that the law of verified tokens is to catch."""

SCHEDULE_FAULTS = tuple(
    fault.name for module in _MODULES_OF_SERVING for fault in module.FAULTS if fault.name not in LAW_FAULTS
)
"""Those that schedules are to catch."""

__all__ = ["FAULTS", "LAW_FAULTS", "SCHEDULE_FAULTS", "Area", "Fault"]
