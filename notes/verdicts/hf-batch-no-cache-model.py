"""generate_batch gives garbage, and says nothing, for OpenAI GPT, which has no key-value cache."""
import torch
from transformers import ContinuousBatchingConfig, GenerationConfig, OpenAIGPTConfig, OpenAIGPTLMHeadModel

torch.manual_seed(0)
model = OpenAIGPTLMHeadModel(OpenAIGPTConfig(vocab_size=131, n_embd=64, n_layer=2, n_head=4, n_positions=64)).eval()
for parameter in model.parameters():
    parameter.data += 0.2 * torch.randn(parameter.shape)
prompt, number = [5, 9, 33, 70], 8
due = model.generate(torch.tensor([prompt]), attention_mask=torch.ones(1, 4), max_new_tokens=number, do_sample=False)[0, 4:].tolist()
for prompts in ([prompt], [prompt, [12, 44, 91]]):
    outputs = model.generate_batch(
        prompts,
        generation_config=GenerationConfig(max_new_tokens=number, do_sample=False, eos_token_id=-1),
        continuous_batching_config=ContinuousBatchingConfig(page_size=16, num_blocks=16, max_batch_tokens=64),
    )
    output = outputs["req_0"]
    print("generate", due, "generate_batch", output.generated_tokens, output.status.name, output.error)
    at = next((place for place in range(number) if due[place] != output.generated_tokens[place]), None)
    if at is not None:
        row = model(torch.tensor([prompt + due[:at]])).logits[0, -1].double()
        print(f"  first difference at {at}, margin {(row[due[at]] - row[output.generated_tokens[at]]).item():.3f}")
