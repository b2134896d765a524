"""Two requests that begin alike, together, after a shorter one: enable_prefix_caching gives the first one the second one's keys."""
from openvino_model import config, gap64, generate, greedy64, pipeline

A = (7, 11, 55, 18)                 # runs first and leaves a block that is filled in part (the block has 32 places)
B, C = A + (23,), A + (19, 71)      # both begin like it, and come together
for split in (True, False):
    pipe = pipeline(enable_prefix_caching=True, dynamic_split_fuse=split)
    generate(pipe, (A, config(1)))
    for name, prompt, (out, _) in zip("BC", (B, C), generate(pipe, (B, config(6, ignore_eos=True)), (C, config(6, ignore_eos=True)))):
        due, gaps = greedy64(prompt, 6)
        print(f"dynamic_split_fuse={split} {name}: got {out}, due {due}, first differs (place, float64 gap): {gap64(prompt, out, due)}")
    pipe = pipeline(enable_prefix_caching=True, dynamic_split_fuse=split)
    generate(pipe, (A, config(1)))
    print(f"dynamic_split_fuse={split} one after the other:", [generate(pipe, (p, config(6, ignore_eos=True)))[0][0] == greedy64(p, 6)[0] for p in (B, C)])
