"""mini-infer: a request with a cached prefix is run without it, and overwrites the cached blocks of the others."""
from mini_model import add, compare, engine_of, make, run

model, folder = make()
shared = list(range(3, 19))  # one block of 16 tokens
for caching in (False, True):
    engine = engine_of(folder, enable_prefix_caching=caching)
    first, second = [*shared, 40, 41], [*shared, 50, 51, 52]
    one = add(engine, first, 12)
    run(engine, steps=3)  # the first request is decoding
    two = add(engine, second, 8)
    run(engine)
    print(f"prefix caching {caching}: request that hits {compare(model, second, two.output_token_ids)}; its neighbour, which was right until then, {compare(model, first, one.output_token_ids)}")
engine = engine_of(folder)
same = [add(engine, shared, 4)]
run(engine)
again = add(engine, shared, 4)
run(engine)
print("a prompt of exactly one block, again:", compare(model, shared, again.output_token_ids))
