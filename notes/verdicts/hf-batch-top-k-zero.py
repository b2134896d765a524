"""A request of continuous batching that asks for top_k=0, which turns the filter off in `generate`, is decoded greedily."""
from collections import Counter

import torch
from transformers import ContinuousBatchingConfig, GenerationConfig, LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
config = LlamaConfig(vocab_size=131, hidden_size=64, intermediate_size=112, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, eos_token_id=None, bos_token_id=None)
model = LlamaForCausalLM(config).eval()
for parameter in model.parameters():
    parameter.data += 0.2 * torch.randn(parameter.shape)
prompt = [5, 9, 33]
together = model.generate(torch.tensor([prompt] * 200), attention_mask=torch.ones(200, 3), max_new_tokens=1, do_sample=True, top_k=0)
print("generate, top_k=0:           ", len(Counter(together[:, -1].tolist())), "different first tokens in 200 draws")
manager = model.init_continuous_batching(
    generation_config=GenerationConfig(max_new_tokens=1, do_sample=True, top_k=50, eos_token_id=-1),
    continuous_batching_config=ContinuousBatchingConfig(page_size=16, num_blocks=256, max_batch_tokens=1024, per_request_processors=True),
)
for number in range(200):
    manager.add_request(prompt, top_k=0)
manager.start()
drawn = Counter()
while sum(drawn.values()) < 200:
    output = manager.get_result(timeout=1)
    if output is not None:
        drawn[output.generated_tokens[0]] += 1
manager.stop()
print("add_request(..., top_k=0):   ", len(drawn), "different first tokens in 200 draws")
