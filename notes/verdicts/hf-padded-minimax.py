"""MiniMax in a left-padded batch: from the second token on, padded rows mask all keys of full-attention layers."""
import torch
from transformers import MiniMaxConfig, MiniMaxForCausalLM

torch.manual_seed(0)
model = MiniMaxForCausalLM(MiniMaxConfig(
    vocab_size=131, hidden_size=64, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    head_dim=16, num_local_experts=2, num_experts_per_tok=1, block_size=8, layer_types=["linear_attention", "full_attention"],
    max_position_embeddings=64, eos_token_id=None, bos_token_id=None, pad_token_id=0,
)).eval()
for parameter in model.parameters():
    parameter.data += 0.2 * torch.randn(parameter.shape)
short, long, number = [5, 9, 33], [70, 12, 44, 91, 17], 8
alone = model.generate(torch.tensor([short]), attention_mask=torch.ones(1, 3), max_new_tokens=number, do_sample=False)[0, 3:].tolist()
rows, mask = torch.tensor([[0, 0, *short], long]), torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])
padded = model.generate(rows, attention_mask=mask, max_new_tokens=number, do_sample=False)[0, 5:].tolist()
print("alone      ", alone)
print("left-padded", padded)
at = next(place for place in range(number) if alone[place] != padded[place])
row = model(torch.tensor([short + alone[:at]]), use_cache=False).logits[0, -1].double()
print(f"first difference at {at}, margin {(row[alone[at]] - row[padded[at]]).item():.3f} in a forward pass without cache")
