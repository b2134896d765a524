"""What other projects' test suites import: one class to subclass, one decorator, and one function, from one source."""

from oracle.contract.check_engine import check_engine
from oracle.contract.pytest_support import EngineContract, assert_kept, parametrize_with_checks
from oracle.engines.adapter import EngineAdapter, Refused
from oracle.engines.declaration import EngineDeclaration
from oracle.engines.messages import EngineOutput, EngineRequest, EngineRun, EngineSample

__all__ = [
    "EngineAdapter",
    "EngineContract",
    "EngineDeclaration",
    "EngineOutput",
    "EngineRequest",
    "EngineRun",
    "EngineSample",
    "Refused",
    "assert_kept",
    "check_engine",
    "parametrize_with_checks",
]
