"""bad_words_ids that name an end-of-sequence token are dropped in silence; the token comes all the same."""
import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
model = LlamaForCausalLM(LlamaConfig(vocab_size=131, hidden_size=64, intermediate_size=112, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, eos_token_id=None, bos_token_id=None)).eval()
prompt = torch.tensor([[5, 9, 33]])
options = dict(attention_mask=torch.ones_like(prompt), max_new_tokens=4, do_sample=False, sequence_bias=[[[7], 20.0]])
for eos in (None, 7):
    print("eos", eos, model.generate(prompt, bad_words_ids=[[7], [8]], eos_token_id=eos, pad_token_id=0, **options)[0, 3:].tolist())
print("eos 7, bad_words_ids [[7]] alone", model.generate(prompt, bad_words_ids=[[7]], eos_token_id=7, pad_token_id=0, **options)[0, 3:].tolist())
