"""LongRoPE (Phi-3) in generate_batch: a request that grows past the original length mixes short and long factors, and a
short request takes the long factors of a longer neighbour (the latter also in a left-padded batch of `generate`)."""
import torch
from transformers import ContinuousBatchingConfig, GenerationConfig, Phi3Config, Phi3ForCausalLM

torch.manual_seed(0)
rope = dict(rope_type="longrope", rope_theta=10000.0, short_factor=[1.0 + 0.1 * i for i in range(8)], long_factor=[2.0 + i for i in range(8)], original_max_position_embeddings=16)
model = Phi3ForCausalLM(Phi3Config(
    vocab_size=131, hidden_size=64, intermediate_size=112, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    max_position_embeddings=64, original_max_position_embeddings=16, rope_parameters=rope, pad_token_id=0, eos_token_id=None, bos_token_id=None,
)).eval()
for parameter in model.parameters():
    parameter.data += 0.2 * torch.randn(parameter.shape)
short, crossing, long, number = [5, 9, 33], list(range(20, 34)), list(range(40, 64)), 8


def due(prompt):
    """Greedy tokens, each by a forward pass of the whole sequence so far."""
    tokens = list(prompt)
    for _ in range(number):
        tokens.append(int(model(torch.tensor([tokens]), use_cache=False).logits[0, -1].argmax()))
    return tokens[len(prompt):]


def alone(prompt):
    return model.generate(torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt)), max_new_tokens=number, do_sample=False)[0, len(prompt):].tolist()


def batch(*prompts):
    outputs = model.generate_batch(
        list(prompts),
        generation_config=GenerationConfig(max_new_tokens=number, do_sample=False, eos_token_id=-1),
        continuous_batching_config=ContinuousBatchingConfig(page_size=16, num_blocks=16, max_batch_tokens=64),
    )
    return outputs["req_0"].generated_tokens


def padded(prompt, other):
    rows = torch.tensor([[0] * (len(other) - len(prompt)) + prompt, other])
    mask = torch.ones_like(rows)
    mask[0, : len(other) - len(prompt)] = 0
    return model.generate(rows, attention_mask=mask, max_new_tokens=number, do_sample=False)[0, len(other):].tolist()


def margin(prompt, right, wrong):
    at = next((place for place in range(number) if right[place] != wrong[place]), None)
    if at is None:
        return "equal"
    row = model(torch.tensor([prompt + right[:at]]), use_cache=False).logits[0, -1].double()
    return f"differs at {at}, margin {(row[right[at]] - row[wrong[at]]).item():.3f}"


with torch.no_grad():
    for name, prompt, came in (
        ("crossing alone, generate", crossing, alone(crossing)),
        ("crossing alone, generate_batch", crossing, batch(crossing)),
        ("short alone, generate_batch", short, batch(short)),
        ("short beside long, generate_batch", short, batch(short, long)),
        ("short beside long, left-padded generate", short, padded(short, long)),
    ):
        print(f"{name:42}", margin(prompt, due(prompt), came))
