"""mini-infer: a checkpoint that transformers 5 saved has its rope_theta in rope_parameters, which is not read; 1000000 is taken."""
from mini_model import add, compare, engine_of, make, run

prompt = list(range(3, 15))
for legacy in (True, False):
    model, folder = make(legacy=legacy)
    engine = engine_of(folder, enable_prefix_caching=False)
    sequence = add(engine, prompt, 8)
    run(engine)
    print("rope_theta at the top of config.json" if legacy else "config.json as transformers 5 writes it", "->", engine.config.rope_theta, compare(model, prompt, sequence.output_token_ids))
