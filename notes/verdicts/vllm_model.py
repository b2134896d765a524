"""A tiny sensitive Llama in a folder, vLLM on it, and its greedy tokens by transformers; for scripts beside it that begin with vllm-."""
import os, tempfile
os.environ.update(
    HF_HUB_OFFLINE="1", VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_CPU_KVCACHE_SPACE="1", VLLM_CPU_OMP_THREADS_BIND="nobind",
    VLLM_NO_USAGE_STATS="1", VLLM_LOGGING_LEVEL="CRITICAL",
)
os.environ.setdefault("OMP_NUM_THREADS", "1")
import torch
from transformers import AutoConfig, AutoModelForCausalLM


def make_model(family="llama", seed=0, **settings):
    """A tiny random model with weights large enough that greedy tokens depend on the whole context."""
    torch.manual_seed(seed)
    values = dict(vocab_size=128, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=2,
                  num_key_value_heads=1, head_dim=32, max_position_embeddings=512, initializer_range=0.2,
                  bos_token_id=None, eos_token_id=None, pad_token_id=None, tie_word_embeddings=False)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **{**values, **settings}), dtype=torch.float32).eval()
    folder = tempfile.mkdtemp()
    model.save_pretrained(folder)
    return model, folder


def rows(model, prompt, output):
    """Reference logits that each output token was to be picked from, teacher-forced, in float32."""
    with torch.no_grad():
        logits = model(torch.tensor([list(prompt) + list(output)])).logits[0]
    return logits[len(prompt) - 1 : -1]


def judge(model, prompt, output):
    """First place where a greedy token is not the reference's, with the gap between the two."""
    for place, (row, token) in enumerate(zip(rows(model, prompt, output), output)):
        best = int(row.argmax())
        if token != best:
            return f"WRONG at {place}: token {token}, and {best} was due; gap {float(row[best] - row[token]):.3g}"
    return "right"


def open_engine(folder, **settings):
    from vllm.engine.arg_utils import EngineArgs
    from vllm.v1.engine.llm_engine import LLMEngine
    values = dict(model=folder, skip_tokenizer_init=True, dtype="float32", enforce_eager=True, max_model_len=256,
                  num_gpu_blocks_override=64, max_logprobs=-1)
    return LLMEngine.from_engine_args(EngineArgs(**{**values, **settings}))


def run(engine, *requests):
    """Runs (prompt, SamplingParams) pairs together; gives their last outputs."""
    last = {}
    for number, (prompt, params) in enumerate(requests):
        engine.add_request(str(number), {"prompt_token_ids": list(prompt)}, params)
    while engine.has_unfinished_requests():
        for output in engine.step():
            last[int(output.request_id)] = output
    return [last.get(number) for number in range(len(requests))]
