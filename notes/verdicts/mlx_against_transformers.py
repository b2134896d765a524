"""Writes a tiny random checkpoint by transformers and holds mlx-lm's logits to its own, teacher-forced; for scripts beside it that begin with mlx-."""
import json, math, os, subprocess, tempfile
import numpy as np, torch
from transformers import AutoConfig, AutoModelForCausalLM

MLX_PYTHON = os.environ.get("MLX_PYTHON", "python")
COMMON = dict(vocab_size=131, hidden_size=64, intermediate_size=112, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
              max_position_embeddings=512, bos_token_id=None, pad_token_id=None, eos_token_id=7)
MLX = """
import sys, numpy as np, mlx.core as mx; from pathlib import Path; from mlx_lm.utils import load_model
mx.disable_compile(); m, _ = load_model(Path(sys.argv[1])); t = np.load(sys.argv[1] + "/tokens.npy")
np.save(sys.argv[1] + "/mlx.npy", np.array(m(mx.array(t)[None])[0].astype(mx.float32)))
"""


def compare(family, values, control=None, legacy={}):
    """Holds mlx-lm to transformers.

    family, values: the family, and what its configuration sets besides the widths.
    control: values with which both sides agree.
    legacy: keys beside transformers 5's own, as checkpoints on the hub have them; None for transformers 5's alone.
    """
    config = {**COMMON, **values}
    print("as asked:"); _run(family, config, legacy)
    if control is not None: print("control", control, ":"); _run(family, {**config, **control}, legacy)


def _run(family, config, legacy):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **config), dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.dim() > 1 and not name.endswith("A_log"): p.normal_(0, ((0.03 if model.config.tie_word_embeddings else 0.25) if "embed" in name else (2.5 if "q_proj" in name else 1.5) / math.sqrt(p.shape[-1])))
            else: p.add_(torch.randn_like(p) * (0.1 if "bias" in name else 0.3))
        for name, b in model.named_buffers():
            if "correction" in name: b.normal_(0, 0.3)
    folder = tempfile.mkdtemp(); model.save_pretrained(folder)
    path = folder + "/config.json"; saved = json.load(open(path)); rope = saved.get("rope_parameters") or {}
    if legacy is not None:
        saved.setdefault("rope_theta", rope.get("rope_theta", 10000.0))
        if rope.get("rope_type", "default") != "default": saved["rope_scaling"] = {k: v for k, v in rope.items() if k != "rope_theta"}
        else: saved.setdefault("rope_scaling", None)
        saved.update(legacy); json.dump(saved, open(path, "w"))
    tokens = np.random.default_rng(1).integers(1, 131, size=40); np.save(folder + "/tokens.npy", tokens)
    with torch.no_grad():
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
        due = model(torch.tensor(tokens)[None], use_cache=False).logits[0].numpy()
        try: wide = model.double()(torch.tensor(tokens)[None], use_cache=False).logits[0].numpy()
        except Exception: wide = due
    done = subprocess.run([MLX_PYTHON, "-c", MLX, folder], capture_output=True, text=True)
    if done.returncode: print("   mlx-lm raised:", done.stderr.strip().splitlines()[-1][:200]); return
    came = np.load(folder + "/mlx.npy"); differ = [i for i in range(40) if came[i].argmax() != due[i].argmax()]
    print(f"   largest difference of logits {abs(came - due).max():.3g} (their spread {due.std():.2g}, float32 against float64 {abs(due - wide).max():.1e}); {len(differ)} of 40 greedy tokens differ")
    if differ:
        i = differ[0]; a, b = int(came[i].argmax()), int(due[i].argmax())
        print(f"   first at {i}: token {a} came and {b} was due; the reference's gap between them is {wide[i][b] - wide[i][a]:.3g}")
