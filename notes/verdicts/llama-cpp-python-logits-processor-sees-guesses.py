"""A logits processor is handed tokens that have not been chosen yet as soon as a draft model guesses: the output is no longer that of the same call without guesses."""
import numpy as np, llama_cpp
from llama_cpp_model import PATH, VOCAB, logits64

from llama_cpp import Llama, LogitsProcessorList
from llama_cpp.llama_speculative import LlamaPromptLookupDecoding
def make(**more): return Llama(PATH, n_ctx=256, n_threads=1, n_threads_batch=1, type_k=0, type_v=0, flash_attn=False, verbose=False, **more)
SEEN = []
def not_twice_in_a_row(input_ids, scores):
    """Bars the last token."""
    SEEN.append(len(input_ids)); scores = scores.copy(); scores[int(input_ids[-1])] = -1e9; return scores
def run(model, prompt, n):
    SEEN.clear(); out = []
    for token in model.generate(list(prompt), temp=0.0, logits_processor=LogitsProcessorList([not_twice_in_a_row])):
        out.append(int(token))
        if len(out) == n: return out
def due(prompt, n):
    out = []
    for _ in range(n):
        row = logits64([*prompt, *out])[-1].copy(); row[[*prompt, *out][-1]] = -np.inf; out.append(int(row.argmax()))
    return out
plain, guessing = make(), make(draft_model=LlamaPromptLookupDecoding(max_ngram_size=2, num_pred_tokens=4))
rng = np.random.default_rng(0)
for _ in range(40):
    prompt = tuple(int(t) for t in rng.integers(2, VOCAB, 3)) * 2
    a = run(plain, prompt, 14); lengths_a = list(SEEN); b = run(guessing, prompt, 14)
    if a != b:
        print("prompt", prompt); print("due          ", due(prompt, 14)); print("without draft", a); print("with draft   ", b)
        print("lengths of input_ids that the processor was given, without:", lengths_a); print("                                                      with:", SEEN)
        n = next(i for i in range(14) if a[i] != b[i]); row = logits64([*prompt, *a[:n]])[-1]
        print(f"first differs at {n}: {b[n]} for {a[n]}, which lies {row[a[n]] - row[b[n]]:+.3f} above it in float64 before the processor bars {[*prompt, *a[:n]][-1]}")
        break
