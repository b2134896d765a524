"""mini-infer: any block_size but 16 gives wrong tokens or an IndexError, because a sequence's table is always made for 16."""
from mini_model import add, compare, engine_of, make, run

model, folder = make()
prompt = list(range(3, 25))
for size in (16, 32, 64, 8):
    engine = engine_of(folder, block_size=size, enable_prefix_caching=False)
    sequence = add(engine, prompt, 20)
    try:
        run(engine)
        print(f"block_size {size}:", compare(model, prompt, sequence.output_token_ids))
    except IndexError as error:
        print(f"block_size {size}: IndexError: {error}")
