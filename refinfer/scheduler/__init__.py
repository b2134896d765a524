"""Who runs in the next step? Policy without tensors."""

from refinfer.scheduler.block_space import BlockSpace
from refinfer.scheduler.continuous import ContinuousScheduler
from refinfer.scheduler.output import (
    BlockOperation,
    CopyBlock,
    DropSwapped,
    ForgetBlocks,
    ScheduledRow,
    SchedulerOutput,
    SwapIn,
    SwapOut,
)
from refinfer.scheduler.queues import RequestQueues
from refinfer.scheduler.request import Request, RequestState, RequestStatus
from refinfer.scheduler.static import StaticScheduler

__all__ = [
    "BlockOperation",
    "BlockSpace",
    "ContinuousScheduler",
    "CopyBlock",
    "DropSwapped",
    "ForgetBlocks",
    "Request",
    "RequestQueues",
    "RequestState",
    "RequestStatus",
    "ScheduledRow",
    "SchedulerOutput",
    "StaticScheduler",
    "SwapIn",
    "SwapOut",
]
