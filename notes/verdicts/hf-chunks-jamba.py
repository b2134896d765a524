"""Jamba and Zamba (Mamba-1) with prefill_chunk_size: each chunk of the prompt begins from an empty state-space state."""
import torch
from transformers import JambaConfig, JambaForCausalLM, ZambaConfig, ZambaForCausalLM

common = dict(vocab_size=131, hidden_size=64, intermediate_size=112, num_attention_heads=4, attn_layer_period=2, attn_layer_offset=1, mamba_d_state=8, mamba_dt_rank=4, tie_word_embeddings=False, eos_token_id=None, bos_token_id=None, pad_token_id=0)
torch.manual_seed(0)
models = {
    "Jamba": JambaForCausalLM(JambaConfig(num_hidden_layers=2, num_key_value_heads=2, num_experts=2, num_experts_per_tok=1, **common)),
    "Zamba": ZambaForCausalLM(ZambaConfig(num_hidden_layers=4, num_key_value_heads=4, n_mamba_heads=2, attention_hidden_size=128, attention_head_dim=32, **common)),
}
prompt, number = [70, 12, 44, 91, 17, 63, 28, 101, 7, 33], 6
for name, model in models.items():
    model.eval()
    for own, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape)
        parameter.data = 0.3 * noise if parameter.dim() >= 2 else parameter.data + 0.2 * noise
    due, came = (
        model.generate(torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt)), max_new_tokens=number, do_sample=False, prefill_chunk_size=size)[0, len(prompt):].tolist()
        for size in (None, 3)
    )
    print(name, "whole prompt", due, "in chunks of 3", came)
    at = next(place for place in range(number) if due[place] != came[place])
    row = model(torch.tensor([prompt + due[:at]]), use_cache=False).logits[0, -1].double()
    print(f"  first difference at {at}, margin {(row[due[at]] - row[came[at]]).item():.3f} in a forward pass without cache")
