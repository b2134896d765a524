"""nemotron_h does not hand the lengths of right-padded prompts to ssm_update: the shorter of two prompts loses its state."""
import mlx.core as mx
from mlx.utils import tree_map
from mlx_lm.generate import BatchGenerator
from mlx_lm.models import mamba2, nemotron_h
CONFIG = dict(model_type="nemotron_h", vocab_size=131, hidden_size=64, intermediate_size=96, max_position_embeddings=256, num_attention_heads=4,
              num_key_value_heads=2, attention_bias=False, mamba_num_heads=4, mamba_head_dim=32, mamba_proj_bias=False, ssm_state_size=8, conv_kernel=4,
              n_groups=1, mlp_bias=False, layer_norm_epsilon=1e-5, use_bias=False, use_conv_bias=True, hybrid_override_pattern=list("M*-M"))
def tokens(model, prompts):
    generator = BatchGenerator(model); uids = generator.insert(prompts, max_tokens=[8] * len(prompts)); out = {uid: [] for uid in uids}; rows = {}
    while responses := generator.next_generated():
        for r in responses: out[r.uid].append(r.token); rows.setdefault(r.uid, []).append(r.logprobs)
    return [out[uid] for uid in uids], [rows[uid] for uid in uids]
mx.random.seed(0); model = nemotron_h.Model(nemotron_h.ModelArgs.from_dict(CONFIG))
model.update(tree_map(lambda p: mx.random.normal(p.shape) * 0.25 + (p if p.ndim == 1 else 0), model.parameters())); mx.eval(model.parameters())
short, long = [5, 3, 8, 2], [9, 4, 4, 31, 60, 2, 17, 33, 90, 12]
(alone,), (rows,) = tokens(model, [short]); (beside, _), (rows2, _) = tokens(model, [short, long])
print("alone                 ", alone); print("beside a longer prompt", beside)
at = next((i for i in range(8) if alone[i] != beside[i]), None)
print(f"first log-probabilities differ by {mx.abs(rows[0] - rows2[0]).max().item():.3g}", "" if at is None else f"; at {at} the gap in the lone run is {(rows[at][alone[at]] - rows[at][beside[at]]).item():.3g}")
