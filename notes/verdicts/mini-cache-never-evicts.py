"""mini-infer: cached prefixes are never evicted; with prefix caching, which is the default, the pool runs dry for good."""
from mini_model import add, engine_of, make, run

model, folder = make()
for caching in (False, True):
    engine = engine_of(folder, num_blocks=8, enable_prefix_caching=caching)
    for number in range(6):
        sequence = add(engine, [number + place for place in range(40)], 2)
        try:
            run(engine, steps=200)
            print(f"caching {caching}, request {number}: {len(sequence.output_token_ids)} tokens, {sequence.status.value}, free blocks {engine.block_pool.num_free} of 8")
        except MemoryError as error:
            print(f"caching {caching}, request {number}: MemoryError: {error}")
            break
