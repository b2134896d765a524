"""Planted bugs by name: each is one that engines shipped, and each must be caught."""

from oracle.faults import (
    block_faults,
    border_faults,
    cache_faults,
    company_faults,
    delivery_faults,
    drafting_faults,
    ending_faults,
    guess_faults,
    loader_faults,
    mask_faults,
    model_faults,
    no_op_faults,
    no_op_memory_faults,
    numerics_faults,
    paged_faults,
    penalty_faults,
    picking_faults,
    position_faults,
    preemption_faults,
    prefix_faults,
    rejection_faults,
    resumption_faults,
    reuse_faults,
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

_MODULES_OF_THE_MATRIX = (
    company_faults,
    border_faults,
    resumption_faults,
    reuse_faults,
    guess_faults,
    delivery_faults,
)

_AREAS_OF_PROPERTIES = (Area.LOADER, Area.MODEL, Area.MASKS, Area.CACHES, Area.NUMERICS)
"""Areas whose code runs in every generated case, and in hardly any schedule."""

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
        *_MODULES_OF_THE_MATRIX,
    )
    for fault in module.FAULTS
}
"""Every planted fault by its switch."""

LAW_FAULTS = tuple(fault.name for fault in FAULTS.values() if fault.area is Area.LAW)
"""Those that the law of verified tokens is to catch."""

SCHEDULE_FAULTS = tuple(
    fault.name
    for module in (*_MODULES_OF_SERVING, *_MODULES_OF_THE_MATRIX)
    for fault in module.FAULTS
    if fault.name not in LAW_FAULTS and not (module in _MODULES_OF_THE_MATRIX and fault.area in _AREAS_OF_PROPERTIES)
)
"""Those that schedules are to catch."""

NO_OP_FAULTS = {fault.name: fault for module in (no_op_faults, no_op_memory_faults) for fault in module.NO_OPS}
"""Faults that are none, by their switches: other ways to do the same. An alarm about one is a false alarm."""

__all__ = ["FAULTS", "LAW_FAULTS", "NO_OP_FAULTS", "SCHEDULE_FAULTS", "Area", "Fault"]
