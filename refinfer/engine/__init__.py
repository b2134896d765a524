"""What happens in one step, and what do callers see of it?"""

from refinfer.engine.engine import LLMEngine
from refinfer.engine.llm import LLM
from refinfer.engine.loading import LoadedModel
from refinfer.engine.output import CompletionOutput, Logprob, RequestOutput
from refinfer.engine.statistics import EngineStats

__all__ = ["LLM", "CompletionOutput", "EngineStats", "LLMEngine", "LoadedModel", "Logprob", "RequestOutput"]
