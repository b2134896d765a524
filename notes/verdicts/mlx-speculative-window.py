"""Speculative decoding of a model with a sliding window goes wrong once the window is full: rejected guesses stay in the cache."""
import mlx.core as mx
from mlx.utils import tree_map
from mlx_lm.generate import generate_step, speculative_generate_step
from mlx_lm.models import llama
CONFIG = dict(model_type="llama", hidden_size=64, num_hidden_layers=2, intermediate_size=112, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
              rms_norm_eps=1e-5, vocab_size=131, tie_word_embeddings=False, sliding_window=16, layer_types=["sliding_attention", "full_attention"])
def make(noise):
    mx.random.seed(0); model = llama.Model(llama.ModelArgs.from_dict(CONFIG))
    model.update(tree_map(lambda p: p if p.ndim == 1 else mx.random.normal(p.shape) * 0.22, model.parameters()))
    model.update(tree_map(lambda p: p + noise * mx.random.normal(p.shape), model.parameters())); mx.eval(model.parameters()); return model
model, draft, prompt = make(0.0), make(0.01), mx.array([5, 3, 8, 2, 13, 21, 34, 55])
plain = list(generate_step(prompt, model, max_tokens=32)); guessed = list(speculative_generate_step(prompt, model, draft, max_tokens=32, num_draft_tokens=2))
a, b = [int(t) for t, _ in plain], [int(t) for t, _, _ in guessed]
print("plain      ", a); print("speculative", b)
at = next((i for i in range(32) if a[i] != b[i]), None)
if at is not None: print(f"parts at output token {at} (context {len(prompt) + at}, window 16); gap of the plain run there {(plain[at][1][a[at]] - plain[at][1][b[at]]).item():.3g}")
first = next((i for i in range(32 if at is None else at + 1) if mx.abs(plain[i][1] - guessed[i][1]).max().item() > 1e-3), None)
print("log-probabilities part at output token", first, "; guesses that stood:", sum(f for *_, f in guessed))
