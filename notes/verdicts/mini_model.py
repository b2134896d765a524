"""A tiny sensitive Qwen2 in a folder, and its greedy tokens by forward passes of transformers; for the scripts beside it that begin with mini-."""
import json
import tempfile
from pathlib import Path

import torch
from mini_infer import InferenceEngine, SamplingParams
from mini_infer.models import load_model_from_safetensors
from transformers import Qwen2Config, Qwen2ForCausalLM


def make(legacy=True, **others):
    torch.manual_seed(0)
    settings = dict(vocab_size=131, hidden_size=64, intermediate_size=112, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16, max_position_embeddings=256, rope_parameters={"rope_type": "default", "rope_theta": 10000.0}, tie_word_embeddings=False, eos_token_id=None, bos_token_id=None)
    model = Qwen2ForCausalLM(Qwen2Config(**{**settings, **others})).eval()
    for parameter in model.parameters():
        parameter.data += 0.2 * torch.randn(parameter.shape)
    folder = Path(tempfile.mkdtemp())
    model.save_pretrained(folder)
    if legacy:
        path = folder / "config.json"
        config = json.loads(path.read_text())
        path.write_text(json.dumps({**config, "rope_theta": config["rope_parameters"]["rope_theta"]}))
    return model, folder


def engine_of(folder, **settings):
    model, config = load_model_from_safetensors(str(folder), device="cpu", dtype=torch.float32)
    return InferenceEngine(model, config, device=torch.device("cpu"), **settings)


def add(engine, prompt, max_tokens):
    return engine.add_request(list(prompt), sampling_params=SamplingParams(max_tokens=max_tokens))


def run(engine, *sequences, steps=10**6):
    while engine.scheduler.has_unfinished_sequences() and steps:
        engine.step()
        steps -= 1
    return [sequence.output_token_ids for sequence in sequences]


def compare(model, prompt, came):
    """Judges each token by a forward pass over prompt and the tokens that came."""
    with torch.no_grad():
        logits = model(torch.tensor([[*prompt, *came]])).logits[0].double()
    for place, token in enumerate(came):
        row = logits[len(prompt) + place - 1]
        if int(row.argmax()) != token:
            return f"wrong at {place}: {token} came, {int(row.argmax())} was due, margin {(row.max() - row[token]).item():.3f}"
    return "right"
