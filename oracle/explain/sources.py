"""Which source files does each part of `refinfer` stand in? Where the reader of a verdict is to look first."""

POOL = ("refinfer/cache/block_pool.py", "refinfer/scheduler/block_space.py")
TABLE = ("refinfer/cache/block_table.py", "refinfer/scheduler/block_space.py")
SPACE = ("refinfer/scheduler/block_space.py", "refinfer/cache/block_pool.py")
PREFIX = ("refinfer/cache/prefix.py", "refinfer/cache/prefix_tree.py", "refinfer/scheduler/block_space.py")
QUEUES = ("refinfer/scheduler/queues.py", "refinfer/scheduler/block_space.py")
POLICY = ("refinfer/scheduler/continuous.py", "refinfer/scheduler/queues.py")
ROWS = ("refinfer/scheduler/output.py",)
SAMPLER = ("refinfer/sampling/sampler.py", "refinfer/sampling/logits.py")
TOLD_TO_SAMPLER = ("refinfer/scheduler/request.py", "refinfer/engine/core.py", "refinfer/scheduler/queues.py")
PROCESSORS = ("refinfer/sampling/logits.py", "refinfer/sampling/sampler.py")
LOGPROBS = ("refinfer/sampling/logprobs.py", "refinfer/engine/core.py")
STOPPING = ("refinfer/sampling/stopping.py", "refinfer/engine/core.py")
STRINGS = ("refinfer/sampling/stop_strings.py", "refinfer/engine/answer.py")
DETOKENIZER = ("refinfer/tokenizer/detokenizer.py", "refinfer/engine/answer.py")
TOKENIZER = ("refinfer/tokenizer/tokenizer.py",)
VERIFIER = ("refinfer/speculative/verifier.py", "refinfer/engine/speculation.py", "refinfer/sampling/context.py")
PROPOSER = ("refinfer/speculative/draft_model.py", "refinfer/speculative/ngram.py")
LOADER = ("refinfer/model/checkpoint.py", "refinfer/model/safetensors_file.py")
CONFIG = ("refinfer/config/model_config.py",)
ROPE_CONFIG = ("refinfer/config/rope_config.py",)
RUNNER = ("refinfer/engine/model_runner.py", "refinfer/model/model_input.py")
NUMERICS = ("refinfer/numerics/invariant.py", "refinfer/numerics/plain.py")
STATIC_POLICY = ("refinfer/scheduler/static.py",)

CACHE_BY_MODE = {
    "none": ("refinfer/cache/recompute.py",),
    "static": ("refinfer/cache/static.py",),
    "continuous": ("refinfer/cache/continuous.py",),
    "paged": ("refinfer/cache/paged_view.py", "refinfer/cache/paged.py"),
    "paged_gather": ("refinfer/cache/paged_view.py", "refinfer/cache/paged.py"),
}
"""Where the attention view of each mode stands."""

_BY_MODULE = {
    "embed_tokens": ("refinfer/model/llama.py",),
    "rotary_emb": ("refinfer/model/rope.py", "refinfer/numerics/rotary.py", "refinfer/config/rope_config.py"),
    "rope": ("refinfer/numerics/plain.py", "refinfer/model/rope.py"),
    "core": ("refinfer/numerics/tiled_attention.py", *NUMERICS, "refinfer/attention_layout.py"),
    "layernorm": ("refinfer/model/norm.py", *NUMERICS),
    "norm": ("refinfer/model/norm.py", *NUMERICS),
    "proj": ("refinfer/model/linear.py", "refinfer/numerics/products.py", *NUMERICS),
    "lm_head": ("refinfer/model/linear.py", "refinfer/numerics/products.py", *NUMERICS),
    "self_attn": ("refinfer/model/attention.py",),
    "mlp": ("refinfer/model/mlp.py", *NUMERICS),
    "silu": (*NUMERICS, "refinfer/model/mlp.py"),
    "model": ("refinfer/model/llama.py",),
}


def sources_of_module(path: str) -> tuple[str, ...]:
    """Gives where a module of the model stands, by its path; a layer as a whole stands with the model."""
    last = path.rpartition(".")[2].partition("[")[0]
    return next((own for end, own in _BY_MODULE.items() if last.endswith(end)), _BY_MODULE["model"])
