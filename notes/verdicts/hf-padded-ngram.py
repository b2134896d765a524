"""no_repeat_ngram_size counts the padding of a left-padded batch as if it were part of the prompt."""
import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
model = LlamaForCausalLM(LlamaConfig(vocab_size=131, hidden_size=64, intermediate_size=112, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, eos_token_id=None, bos_token_id=None)).eval()
for parameter in model.parameters():
    parameter.data += 0.2 * torch.randn(parameter.shape)
PAD, number = 0, 6
bias = [[[PAD], 6.0], [[5], 6.0]]  # so that the two tokens that matter are likely


def run(rows, mask, size):
    return model.generate(torch.tensor(rows), attention_mask=torch.tensor(mask), max_new_tokens=number, do_sample=False, pad_token_id=PAD, no_repeat_ngram_size=size, sequence_bias=bias)[0, len(rows[0]):].tolist()


for size in (1, 2):
    alone = run([[5, 9]], [[1, 1]], size)
    padded = run([[PAD, PAD, PAD, 5, 9], [7, 8, 9, 10, 11]], [[0, 0, 0, 1, 1], [1] * 5], size)
    at = next((place for place in range(number) if alone[place] != padded[place]), None)
    print(f"size {size}: alone {alone}, left-padded {padded}, first difference at {at}")
    if at is not None:
        row = model(torch.tensor([[5, 9, *alone[:at]]])).logits[0, -1].double()
        for token, value in bias:
            row[token[0]] += value
        print(f"  margin {(row[alone[at]] - row[padded[at]]).item():.3f}")
