"""mini-infer: sliding windows and scaled RoPE of a Qwen2 checkpoint are passed over in silence."""
from mini_model import add, compare, engine_of, make, run

prompt = list(range(3, 43))
for name, settings in (
    ("plain", {}),
    ("use_sliding_window, window 8", dict(use_sliding_window=True, sliding_window=8, max_window_layers=0)),
    ("yarn, factor 4", dict(rope_parameters={"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64})),
):
    model, folder = make(**settings)
    engine = engine_of(folder, enable_prefix_caching=False)
    sequence = add(engine, prompt, 8)
    run(engine)
    print(name, "->", compare(model, prompt, sequence.output_token_ids))
