"""Prompt lookup (and assisted decoding) with a static cache writes behind the cache's end and raises."""
import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
model = LlamaForCausalLM(LlamaConfig(vocab_size=131, hidden_size=64, intermediate_size=112, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, eos_token_id=None, bos_token_id=None)).eval()
failed = 0
for seed in range(40):
    torch.manual_seed(seed)
    prompt = torch.randint(0, 2, (1, 9))
    options = dict(attention_mask=torch.ones_like(prompt), max_new_tokens=4, do_sample=False, prompt_lookup_num_tokens=3, sequence_bias=[[[0], 9.0], [[1], 9.0]])
    model.generate(prompt, **options)
    model._previous_max_cache_length = -1  # each call as if it were the first
    try:
        model.generate(prompt, cache_implementation="static", **options)
    except IndexError as error:
        failed += 1
        words = f"{prompt.tolist()}: {error}"
print(failed, "of 40 prompts raise with a static cache, none with a dynamic one; for example", words)
