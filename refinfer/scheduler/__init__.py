"""Who runs in the next step? Policy without tensors."""

from refinfer.scheduler.continuous import ContinuousScheduler
from refinfer.scheduler.request import Request, RequestState
from refinfer.scheduler.static import StaticScheduler

__all__ = ["ContinuousScheduler", "Request", "RequestState", "StaticScheduler"]
