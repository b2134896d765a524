"""mini-infer: requests that fit one by one raise MemoryError together; only decoding requests are preempted, never for a prompt."""
from mini_model import add, compare, engine_of, make, run

model, folder = make()
prompts = [list(range(3, 51)), list(range(60, 108))]  # 48 tokens, 3 blocks each, and 16 more tokens for one block more
for prompt in prompts:
    engine = engine_of(folder, num_blocks=5, enable_prefix_caching=False)
    sequence = add(engine, prompt, 16)
    run(engine)
    print("alone:", compare(model, prompt, sequence.output_token_ids), engine.scheduler.preempted_count, "preempted")
engine = engine_of(folder, num_blocks=5, enable_prefix_caching=False)
sequences = [add(engine, prompt, 16) for prompt in prompts]
try:
    run(engine)
    print("together: no error")
except MemoryError as error:
    print("together: MemoryError:", error)
