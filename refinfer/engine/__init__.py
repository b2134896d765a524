"""What happens in one step, and what do callers see of it?"""

from refinfer.engine.llm import LLM
from refinfer.engine.output import CompletionOutput, Logprob, RequestOutput

__all__ = ["LLM", "CompletionOutput", "Logprob", "RequestOutput"]
