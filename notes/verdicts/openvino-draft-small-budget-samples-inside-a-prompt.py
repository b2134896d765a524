"""With a draft and a small max_num_batched_tokens, a prompt that is cut into chunks gets a token that was sampled before its end."""
from openvino_model import config, gap64, generate, greedy64, pipeline

A, B = (4,), (74, 5, 5, 4, 3, 35, 5, 90, 4, 62)
for budget in (7, 256):
    pipe = pipeline(draft=True, max_num_batched_tokens=budget)
    g = dict(ignore_eos=True, num_assistant_tokens=3)
    out = generate(pipe, (A, config(4, **g)), (B, config(4, **g)))
    for p, (o, _) in zip((A, B), out):
        due, _ = greedy64(p, 4); print(f"max_num_batched_tokens={budget}: got {o}, due {due}, first differs (place, float64 gap): {gap64(p, o, due)}")
