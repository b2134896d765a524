"""presence_penalty and frequency_penalty raise a token's score where its logit is negative: the same model with all logits moved by a constant, which changes no probability, gives other tokens."""
from openvino_model import config, generate, logits64, pipeline

P = (5, 9, 3)
def due_with(n, presence):
    out = []
    for _ in range(n):
        row = logits64([*P, *out])[-1].copy(); row[list(set(out))] -= presence; out.append(int(row.argmax()))
    return out
for shift in (0.0, 100.0, -100.0):
    pipe = pipeline(shift=shift)
    print(f"all logits {shift:+}: presence_penalty 0: {generate(pipe, (P, config(10, ignore_eos=True)))[0][0]}")
    print(f"                  presence_penalty 2: {generate(pipe, (P, config(10, ignore_eos=True, presence_penalty=2.0)))[0][0]}  frequency_penalty 2: {generate(pipe, (P, config(10, ignore_eos=True, frequency_penalty=2.0)))[0][0]}")
print("due with presence_penalty 2 (subtracted):", due_with(10, 2.0))
