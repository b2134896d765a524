"""Gemma 2 in a batch: the mask (batch, 1, L, K) meets scores (batch, kv_heads, repeats, L, K). It raises, unless the batch is as large as
the number of key-value heads: then each head of *every* request is masked as another request, in silence."""
import mlx.core as mx
from mlx.utils import tree_map
from mlx_lm.generate import BatchGenerator
from mlx_lm.models import gemma2
CONFIG = dict(model_type="gemma2", hidden_size=64, num_hidden_layers=2, intermediate_size=112, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
              rms_norm_eps=1e-6, vocab_size=131, query_pre_attn_scalar=16.0)
mx.random.seed(0); model = gemma2.Model(gemma2.ModelArgs.from_dict(CONFIG))
model.update(tree_map(lambda p: p if p.ndim == 1 else mx.random.normal(p.shape) * (0.03 if p.shape[0] == 131 else 0.25), model.parameters())); mx.eval(model.parameters())
def tokens(prompts):
    generator = BatchGenerator(model); uids = generator.insert(prompts, max_tokens=[8] * len(prompts)); out = {uid: [] for uid in uids}; rows = {}
    while responses := generator.next_generated():
        for r in responses: out[r.uid].append(r.token); rows.setdefault(r.uid, []).append(r.logprobs)
    return [out[uid] for uid in uids], [rows[uid] for uid in uids]
prompts = [[5, 3, 8, 2], [9, 4, 4, 31, 60, 2, 17, 33, 90, 12], [7, 7, 8]]
alone = [tokens([p]) for p in prompts]
both, rows = tokens(prompts[:2])
for i in range(2):
    print("prompt", i, "alone", alone[i][0][0], "in a batch of 2 (kv heads: 2)", both[i], f"first log-probabilities differ by {mx.abs(alone[i][1][0][0] - rows[i][0]).max().item():.3g}")
try: tokens(prompts)
except ValueError as error: print("a batch of 3:", error)
