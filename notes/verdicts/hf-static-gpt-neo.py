"""GPT-Neo with a static cache: its local attention looks at the wrong keys."""
import torch
from transformers import GPTNeoConfig, GPTNeoForCausalLM

torch.manual_seed(0)
model = GPTNeoForCausalLM(GPTNeoConfig(
    vocab_size=131, hidden_size=64, num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]], window_size=4,
    max_position_embeddings=64, eos_token_id=None, bos_token_id=None, tie_word_embeddings=False,
)).eval()
for parameter in model.parameters():
    parameter.data += 0.2 * torch.randn(parameter.shape)
prompt, number = [5, 9, 33, 70, 12, 44], 8
options = dict(attention_mask=torch.ones(1, len(prompt)), max_new_tokens=number, do_sample=False, pad_token_id=0)
dynamic = model.generate(torch.tensor([prompt]), **options)[0, len(prompt):].tolist()
static = model.generate(torch.tensor([prompt]), cache_implementation="static", **options)[0, len(prompt):].tolist()
print("dynamic", dynamic)
print("static ", static)
at = next(place for place in range(number) if dynamic[place] != static[place])
row = model(torch.tensor([prompt + dynamic[:at]]), use_cache=False).logits[0, -1].double()
print(f"first difference at {at}, margin {(row[dynamic[at]] - row[static[at]]).item():.3f} in a forward pass without cache")
