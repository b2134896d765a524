"""Recurrent families (mamba, falcon_mamba, jamba, recurrent_gemma) let padding into their state: two prompts of different
length in one BatchGenerator give the shorter one other tokens than alone.   Run: MLX_DISABLE_COMPILE=1 python repro.py"""
import mlx.core as mx
from mlx.utils import tree_map
from mlx_lm.generate import BatchGenerator
from mlx_lm.models import jamba, mamba, recurrent_gemma
CASES = {
    "mamba": (mamba, dict(model_type="mamba", vocab_size=131, hidden_size=64, intermediate_size=128, state_size=8, num_hidden_layers=2, conv_kernel=4,
                          use_bias=False, use_conv_bias=True, time_step_rank=4)),
    "jamba": (jamba, dict(model_type="jamba", hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                          attn_layer_offset=1, attn_layer_period=2, expert_layer_offset=1, expert_layer_period=2, mamba_d_conv=4, mamba_d_state=8,
                          mamba_expand=2, num_experts=1, num_experts_per_tok=1, rms_norm_eps=1e-5, max_position_embeddings=256, vocab_size=131)),
    "recurrent_gemma": (recurrent_gemma, dict(model_type="recurrent_gemma", attention_bias=False, conv1d_width=4, hidden_size=64, intermediate_size=128,
                          logits_soft_cap=30.0, num_attention_heads=4, num_hidden_layers=2, num_key_value_heads=1, rms_norm_eps=1e-6, rope_theta=1e4,
                          attention_window_size=64, vocab_size=131, block_types=["recurrent", "attention"])),
}
def tokens(model, prompts):
    generator = BatchGenerator(model); uids = generator.insert(prompts, max_tokens=[8] * len(prompts)); out = {uid: [] for uid in uids}; rows = {}
    while responses := generator.next_generated():
        for r in responses: out[r.uid].append(r.token); rows.setdefault(r.uid, []).append(r.logprobs)
    return [out[uid] for uid in uids], [rows[uid] for uid in uids]
for name, (module, config) in CASES.items():
    mx.random.seed(0); model = module.Model(module.ModelArgs.from_dict(config))
    if name == "recurrent_gemma": model.pop("lm_head", None)
    model.update(tree_map(lambda p: mx.random.normal(p.shape) * 0.25 + (p if p.ndim == 1 else 0) if p.ndim < 3 else mx.random.normal(p.shape) * 0.4, model.parameters())); mx.eval(model.parameters())
    short, long = [5, 3, 8, 2], [9, 4, 4, 31, 60, 2, 17, 33, 90, 12]
    (alone,), (rows,) = tokens(model, [short]); (beside, _), (rows2, _) = tokens(model, [short, long])
    at = next((i for i in range(8) if alone[i] != beside[i]), None)
    print(f"{name:16s} alone {alone}\n{'':16s} beside a longer prompt {beside}; first log-probabilities differ by {mx.abs(rows[0] - rows2[0]).max().item():.3g}",
          "" if at is None else f"; at {at} the gap in the lone run is {(rows[at][alone[at]] - rows[at][beside[at]]).item():.3g}")
