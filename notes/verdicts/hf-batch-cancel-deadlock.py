"""Cancelling the running request after another one was preempted stops continuous batching for good."""
import time

import torch
from transformers import ContinuousBatchingConfig, GenerationConfig, LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
config = LlamaConfig(vocab_size=131, hidden_size=64, intermediate_size=112, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, eos_token_id=None, bos_token_id=None)
model = LlamaForCausalLM(config).eval()
manager = model.init_continuous_batching(
    generation_config=GenerationConfig(max_new_tokens=16, do_sample=False, eos_token_id=-1),
    continuous_batching_config=ContinuousBatchingConfig(page_size=4, num_blocks=6, max_batch_tokens=16),
)
manager.add_request([3, 88, 120, 15, 6, 71, 99], request_id="A", max_new_tokens=16, streaming=True)
manager.add_request([5, 9, 33, 5, 9, 33], request_id="B", max_new_tokens=16, streaming=True)
# The loop's own turns, taken by hand so that the cancellation comes at a chosen moment.
processor = manager._create_batch_processor()
manager.batch_processor, manager.current_batch = processor, 0
while not processor.scheduler.block_new_requests:
    manager._generation_loop_body(processor, bootstrapping=False)
(running,), (waiting,) = processor.scheduler.active_requests, processor.scheduler.waiting_requests
print(f"{waiting} was preempted and waits, {running} runs; cancel {running}")
manager.cancel_request(running)
manager.add_request([1, 2, 3], request_id="C", max_new_tokens=2)
before = manager.current_batch
for _ in range(100):
    manager._generation_loop_body(processor, bootstrapping=False)
cache = processor.cache
print(f"after 100 more turns: {manager.current_batch - before} batches ran, waiting {list(processor.scheduler.waiting_requests)}, "
      f"free share of the cache {cache.compute_free_capacity()}, block_new_requests {processor.scheduler.block_new_requests}")
