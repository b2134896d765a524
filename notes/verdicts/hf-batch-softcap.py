"""generate_batch drops attn_logit_softcapping of Gemma 2 (eager attention); `generate` applies it."""
import torch
from transformers import ContinuousBatchingConfig, Gemma2Config, Gemma2ForCausalLM, GenerationConfig

torch.manual_seed(0)
config = Gemma2Config(
    vocab_size=131, hidden_size=64, intermediate_size=112, num_hidden_layers=3, num_attention_heads=4,
    num_key_value_heads=2, head_dim=16, query_pre_attn_scalar=16, attn_logit_softcapping=2.0, max_position_embeddings=128,
    tie_word_embeddings=False, bos_token_id=None, eos_token_id=None, pad_token_id=0, attn_implementation="eager",
)
model = Gemma2ForCausalLM(config).eval()
for name, parameter in model.named_parameters():
    noise = torch.randn(parameter.shape)
    parameter.data = noise * (0.5 if "embed" in name else 0.2) if parameter.dim() == 2 else parameter.data + 0.3 * noise
prompt, number = [70, 12, 44, 91, 17, 63, 28, 101, 7, 33], 14


def batch(model):
    (output,) = model.generate_batch(
        [prompt],
        generation_config=GenerationConfig(max_new_tokens=number, do_sample=False, eos_token_id=-1),
        continuous_batching_config=ContinuousBatchingConfig(page_size=16, num_blocks=16, max_batch_tokens=64),
    ).values()
    return output.generated_tokens


due = model.generate(torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt)), max_new_tokens=number, do_sample=False)[0, len(prompt):].tolist()
came = batch(model)
at = next(place for place in range(number) if due[place] != came[place])
row = model(torch.tensor([prompt + due[:at]])).logits[0, -1].double()
print("generate      ", due)
print("generate_batch", came)
print(f"first difference at {at}: margin {(row[due[at]] - row[came[at]]).item():.3f} in a forward pass of the whole sequence")
model.config.attn_logit_softcapping = None
for layer in model.model.layers:
    layer.self_attn.attn_logit_softcapping = None
without = model.generate(torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt)), max_new_tokens=number, do_sample=False)[0, len(prompt):].tolist()
print("generate without softcapping", without, "equals generate_batch:", without == came)
