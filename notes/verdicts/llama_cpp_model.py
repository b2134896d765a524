"""A random Llama of two layers as a float32 GGUF file without a vocabulary, and the same forward pass in NumPy float64; for the scripts beside it that begin with llama-cpp-."""
import pathlib, tempfile
import gguf, numpy as np

HIDDEN, HEADS, KV, DIM, INNER, LAYERS, VOCAB = 64, 2, 1, 32, 96, 2, 97
_rng = np.random.Generator(np.random.Philox(7))
def _w(*shape): return (_rng.standard_normal(shape) * 0.3).astype(np.float32)
W = {"token_embd": _w(VOCAB, HIDDEN), "output_norm": 1 + 0.2 * _w(HIDDEN), "output": _w(VOCAB, HIDDEN)}
for i in range(LAYERS):
    W |= {f"blk.{i}.attn_norm": 1 + 0.2 * _w(HIDDEN), f"blk.{i}.ffn_norm": 1 + 0.2 * _w(HIDDEN), f"blk.{i}.attn_q": _w(HEADS * DIM, HIDDEN),
          f"blk.{i}.attn_k": _w(KV * DIM, HIDDEN), f"blk.{i}.attn_v": _w(KV * DIM, HIDDEN), f"blk.{i}.attn_output": _w(HIDDEN, HEADS * DIM),
          f"blk.{i}.ffn_gate": _w(INNER, HIDDEN), f"blk.{i}.ffn_up": _w(INNER, HIDDEN), f"blk.{i}.ffn_down": _w(HIDDEN, INNER)}

def write(path):
    w = gguf.GGUFWriter(path, "llama")
    w.add_vocab_size(VOCAB); w.add_context_length(512); w.add_embedding_length(HIDDEN); w.add_block_count(LAYERS); w.add_feed_forward_length(INNER)
    w.add_head_count(HEADS); w.add_head_count_kv(KV); w.add_key_length(DIM); w.add_value_length(DIM); w.add_layer_norm_rms_eps(1e-5)
    w.add_rope_dimension_count(DIM); w.add_rope_freq_base(10000.0); w.add_file_type(0); w.add_tokenizer_model("none")
    for name, value in W.items(): w.add_tensor(name + ".weight", value)
    w.write_header_to_file(); w.write_kv_data_to_file(); w.write_tensors_to_file(); w.close()
    return str(path)
PATH = write(pathlib.Path(tempfile.mkdtemp()) / "tiny.gguf")

def logits64(ids):
    """Rows of logits after each token, in float64; a rotated pair is two neighbouring elements, as in GGUF files."""
    w = {k: v.astype(np.float64) for k, v in W.items()}
    norm = lambda x, g: x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * g
    ang = np.outer(np.arange(len(ids)), 10000.0 ** -(np.arange(0, DIM, 2) / DIM))[:, None, :]
    def rot(x):
        a, b = x[..., ::2], x[..., 1::2]; y = np.empty_like(x)
        y[..., ::2] = a * np.cos(ang) - b * np.sin(ang); y[..., 1::2] = a * np.sin(ang) + b * np.cos(ang); return y
    x = w["token_embd"][list(ids)]; mask = np.where(np.tril(np.ones((len(ids),) * 2)) > 0, 0.0, -np.inf)
    for i in range(LAYERS):
        g = lambda n: w[f"blk.{i}.{n}"]
        h = norm(x, g("attn_norm")); q = rot((h @ g("attn_q").T).reshape(-1, HEADS, DIM)); k = rot((h @ g("attn_k").T).reshape(-1, KV, DIM)); v = (h @ g("attn_v").T).reshape(-1, KV, DIM)
        k, v = np.repeat(k, HEADS // KV, 1), np.repeat(v, HEADS // KV, 1)
        s = np.einsum("qhd,khd->hqk", q, k) / DIM**0.5 + mask; p = np.exp(s - s.max(-1, keepdims=True)); p /= p.sum(-1, keepdims=True)
        x = x + np.einsum("hqk,khd->qhd", p, v).reshape(len(ids), -1) @ g("attn_output").T
        h = norm(x, g("ffn_norm")); t = h @ g("ffn_gate").T; x = x + (t / (1 + np.exp(-t)) * (h @ g("ffn_up").T)) @ g("ffn_down").T
    return norm(x, w["output_norm"]) @ w["output"].T
