"""RoPE of type "dynamic" cannot be batched: DynamicNTKScalingRoPE takes max() of a vector of offsets (all families; InternLM has a copy of its own)."""
import mlx.core as mx
from mlx_lm.generate import BatchGenerator
from mlx_lm.models import llama
CONFIG = dict(model_type="llama", hidden_size=64, num_hidden_layers=2, intermediate_size=112, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
              rms_norm_eps=1e-5, vocab_size=131, max_position_embeddings=64, rope_scaling={"rope_type": "dynamic", "factor": 2.0})
model = llama.Model(llama.ModelArgs.from_dict(CONFIG))
for prompts in ([[1, 2, 3]], [[1, 2, 3], [1, 2, 3, 4]]):
    generator = BatchGenerator(model); generator.insert(prompts, max_tokens=[2] * len(prompts))
    try: print(len(prompts), "requests:", [r.token for _ in range(5) for r in generator.next()[1]])
    except ValueError as error: print(len(prompts), "requests:", error)
