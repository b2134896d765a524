"""Logits processors of speculative decoding do not see the prompt, but for its last token: repetition penalties are another thing with a draft."""
import mlx.core as mx
from mlx.utils import tree_map
from mlx_lm.generate import generate_step, speculative_generate_step
from mlx_lm.models import llama
from mlx_lm.sample_utils import make_logits_processors
CONFIG = dict(model_type="llama", hidden_size=64, num_hidden_layers=2, intermediate_size=112, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
              rms_norm_eps=1e-5, vocab_size=31, tie_word_embeddings=False)
mx.random.seed(0); model = llama.Model(llama.ModelArgs.from_dict(CONFIG))
model.update(tree_map(lambda p: p if p.ndim == 1 else mx.random.normal(p.shape) * 0.22, model.parameters())); mx.eval(model.parameters())
prompt = mx.array(list(range(16)))
def processors(seen): return [lambda tokens, logits: (seen.append(tokens.tolist()), logits)[1], *make_logits_processors(repetition_penalty=2.0, repetition_context_size=100)]
s1, s2 = [], []
plain = list(generate_step(prompt, model, max_tokens=6, logits_processors=processors(s1)))
guessed = list(speculative_generate_step(prompt, model, model, max_tokens=6, num_draft_tokens=2, logits_processors=processors(s2)))
print("plain      ", [int(t) for t, _ in plain], " the first call saw", s1[0]); print("speculative", [int(t) for t, _, _ in guessed], " the first call saw", s2[0])
a, b = int(plain[0][0]), int(guessed[0][0]); print(f"first token {b} came and {a} was due; gap {(plain[0][1][a] - plain[0][1][b]).item():.3g}; log-probabilities differ by {mx.abs(plain[0][1] - guessed[0][1]).max().item():.3g}")
