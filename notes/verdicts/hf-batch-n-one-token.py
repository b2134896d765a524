"""num_return_sequences > 1 with a prompt of one token kills continuous batching."""
import torch
from transformers import ContinuousBatchingConfig, GenerationConfig, LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
config = LlamaConfig(vocab_size=131, hidden_size=64, intermediate_size=112, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, eos_token_id=None, bos_token_id=None)
model = LlamaForCausalLM(config).eval()
for number in (1, 2):
    outputs = model.generate_batch(
        [[41]],
        generation_config=GenerationConfig(max_new_tokens=4, do_sample=True, num_return_sequences=number, eos_token_id=-1),
        continuous_batching_config=ContinuousBatchingConfig(page_size=16, num_blocks=16, max_batch_tokens=64),
    )
    print(number, [(output.status.name, output.error, output.generated_tokens) for output in outputs.values()])
