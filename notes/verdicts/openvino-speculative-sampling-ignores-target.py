"""do_sample with a draft model accepts what the target can never draw: top_k=1, which leaves one token, does not give the greedy tokens."""
from openvino_model import config, gap64, generate, greedy64, pipeline

P = (5, 9, 3)
c = dict(do_sample=True, temperature=1.0, top_k=1, ignore_eos=True)
due, gaps = greedy64(P, 10)
print("due, since top_k=1 leaves one token:", due)
print("without a draft                    :", generate(pipeline(), (P, config(10, **c)))[0][0])
print("prompt lookup                      :", generate(pipeline(lookup=True), (P, config(10, num_assistant_tokens=3, max_ngram_size=2, **c)))[0][0])
out = generate(pipeline(draft=True), (P, config(10, num_assistant_tokens=3, **c)))[0][0]
print("draft model                        :", out, "first differs (place, float64 gap):", gap64(P, out, due))
