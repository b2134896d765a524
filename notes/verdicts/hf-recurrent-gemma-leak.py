"""RecurrentGemma: a prompt of one token is taken for a decoding step, and gets the convolution state of the request before."""
import torch
from transformers import RecurrentGemmaConfig, RecurrentGemmaForCausalLM

torch.manual_seed(0)
model = RecurrentGemmaForCausalLM(RecurrentGemmaConfig(
    vocab_size=131, hidden_size=64, lru_width=64, intermediate_size=112, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=1,
    head_dim=16, attention_window_size=8, block_types=["recurrent", "recurrent", "attention"], eos_token_id=None, bos_token_id=None, pad_token_id=0,
)).eval()
for name, parameter in model.named_parameters():
    if "recurrent_param" not in name:
        parameter.data += 0.2 * torch.randn(parameter.shape)


def tokens(prompt):
    return model.generate(torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt)), max_new_tokens=6, do_sample=False)[0, len(prompt):].tolist()


first = tokens([41])
tokens([70, 12, 44, 91, 17])
second = tokens([41])
print("[41] in a new model        ", first)
print("[41] after another request ", second)
at = next(place for place in range(6) if first[place] != second[place])
row = model(torch.tensor([[41, *first[:at]]]), use_cache=False).logits[0, -1].double()
print(f"first difference at {at}, margin {(row[first[at]] - row[second[at]]).item():.3f} in a forward pass without cache")
