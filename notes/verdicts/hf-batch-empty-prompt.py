"""generate_batch continues a neighbour's prompt for a request whose own prompt is empty."""
import torch
from transformers import ContinuousBatchingConfig, GenerationConfig, LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
config = LlamaConfig(vocab_size=131, hidden_size=64, intermediate_size=112, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, eos_token_id=None, bos_token_id=None)
model = LlamaForCausalLM(config).eval()
for parameter in model.parameters():
    parameter.data += 0.2 * torch.randn(parameter.shape)


def run(prompts):
    outputs = model.generate_batch(
        prompts,
        generation_config=GenerationConfig(max_new_tokens=4, do_sample=False, eos_token_id=-1),
        continuous_batching_config=ContinuousBatchingConfig(page_size=16, num_blocks=16, max_batch_tokens=64),
    )
    return [(output.status.name, output.error, output.generated_tokens) for output in outputs.values()]


print("empty beside A:", run([[70, 12, 44, 91], []]))
print("empty beside B:", run([[5, 9, 33], []]))
print("empty alone:   ", run([[]]))
