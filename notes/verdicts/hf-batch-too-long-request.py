"""One request that can never fit the cache fails every other request of continuous batching, also those that wait."""
import torch
from transformers import ContinuousBatchingConfig, GenerationConfig, LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
config = LlamaConfig(vocab_size=131, hidden_size=64, intermediate_size=112, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, eos_token_id=None, bos_token_id=None)
model = LlamaForCausalLM(config).eval()
settings = dict(
    generation_config=GenerationConfig(max_new_tokens=20, do_sample=False, eos_token_id=-1),
    continuous_batching_config=ContinuousBatchingConfig(page_size=4, num_blocks=16, max_batch_tokens=16, allow_block_sharing=False),
)
for prompts in ([[3, 88, 120, 15], [5, 9, 33]], [list(range(100)), [3, 88, 120, 15], [5, 9, 33]]):
    outputs = model.generate_batch(prompts, **settings)
    for prompt, output in zip(prompts, outputs.values(), strict=True):
        print(len(prompt), "prompt tokens:", output.status.name, output.error, len(output.generated_tokens), "tokens")
    print()
