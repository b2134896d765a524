"""BatchRotatingKVCache.make_mask counts from `_idx`, which in a rotated cache is where the ring stands: a chunk after a chunk of one token
hides tokens that are in the window. Needs: sliding window, continuous batching, a prompt in segments (as mlx_lm.server cuts every chat)."""
import mlx.core as mx
from mlx.utils import tree_map
from mlx_lm.generate import BatchGenerator
from mlx_lm.models import llama
CONFIG = dict(model_type="llama", hidden_size=64, num_hidden_layers=2, intermediate_size=112, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
              rms_norm_eps=1e-5, vocab_size=131, tie_word_embeddings=False, sliding_window=8, layer_types=["sliding_attention", "full_attention"])
mx.random.seed(0); model = llama.Model(llama.ModelArgs.from_dict(CONFIG))
model.update(tree_map(lambda p: p if p.ndim == 1 else mx.random.normal(p.shape) * 0.3, model.parameters())); mx.eval(model.parameters())
FIRST = list(range(40, 59)); SECOND = [[5, 3, 8, 2], [13], [21, 34, 55, 89, 11, 22, 33]]
def run(with_neighbour):
    generator = BatchGenerator(model, prefill_step_size=4); rows = []
    if with_neighbour:
        (first,) = generator.insert([FIRST], max_tokens=[1])
        for _ in range(5): generator.next()
    (second,) = generator.insert_segments([SECOND], max_tokens=[8])
    for _ in range(30):
        rows += [(r.token, r.logprobs) for r in generator.next()[1] if r.uid == second]
    return rows
alone, beside = run(False), run(True)
a, b = [t for t, _ in alone], [t for t, _ in beside]; print("alone                     ", a); print("after a neighbour's prefill", b)
at = next((i for i in range(8) if a[i] != b[i]), None)
print(f"first log-probabilities differ by {mx.abs(alone[0][1] - beside[0][1]).max().item():.3g}", "" if at is None else f"; at {at} the gap of the lone run is {(alone[at][1][a[at]] - alone[at][1][b[at]]).item():.3g}")
