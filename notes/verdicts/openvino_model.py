"""A random Llama of two layers in OpenVINO's own operations (float32), and the same forward pass in NumPy float64; for the scripts beside it that begin with openvino-."""
import pathlib, tempfile
import numpy as np, openvino as ov, openvino_genai as genai
from openvino import opset13 as op

HIDDEN, HEADS, KV, DIM, INNER, LAYERS, VOCAB, EOS = 32, 2, 1, 16, 48, 2, 97, 1
_rng = np.random.Generator(np.random.Philox(7))
def _w(*shape): return (_rng.standard_normal(shape) * 0.35).astype(np.float32)
W = {"embed": _w(VOCAB, HIDDEN), "norm": 1 + 0.2 * _w(HIDDEN), "head": _w(VOCAB, HIDDEN)}
for i in range(LAYERS):
    W |= {f"{i}.n1": 1 + 0.2 * _w(HIDDEN), f"{i}.n2": 1 + 0.2 * _w(HIDDEN), f"{i}.q": _w(HEADS * DIM, HIDDEN),
          f"{i}.k": _w(KV * DIM, HIDDEN), f"{i}.v": _w(KV * DIM, HIDDEN), f"{i}.o": _w(HIDDEN, HEADS * DIM),
          f"{i}.g": _w(INNER, HIDDEN), f"{i}.u": _w(INNER, HIDDEN), f"{i}.d": _w(HIDDEN, INNER)}
FREQ = 10000.0 ** -(np.arange(0, DIM, 2) / DIM)

def logits64(ids, layers=LAYERS, shift=0.0):
    """Rows of logits after each token, in float64."""
    w = {k: v.astype(np.float64) for k, v in W.items()}
    norm = lambda x, g: x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * g
    ang = np.outer(np.arange(len(ids)), FREQ); ang = np.concatenate([ang, ang], -1)[:, None, :]
    def rot(x):
        a, b = np.split(x, 2, -1)
        return x * np.cos(ang) + np.concatenate([-b, a], -1) * np.sin(ang)
    x = w["embed"][list(ids)]
    mask = np.where(np.tril(np.ones((len(ids),) * 2)) > 0, 0.0, -np.inf)
    for i in range(layers):
        h = norm(x, w[f"{i}.n1"])
        q = rot((h @ w[f"{i}.q"].T).reshape(-1, HEADS, DIM)); k = rot((h @ w[f"{i}.k"].T).reshape(-1, KV, DIM))
        v = (h @ w[f"{i}.v"].T).reshape(-1, KV, DIM)
        k, v = np.repeat(k, HEADS // KV, 1), np.repeat(v, HEADS // KV, 1)
        s = np.einsum("qhd,khd->hqk", q, k) / DIM**0.5 + mask
        p = np.exp(s - s.max(-1, keepdims=True)); p /= p.sum(-1, keepdims=True)
        x = x + np.einsum("hqk,khd->qhd", p, v).reshape(len(ids), -1) @ w[f"{i}.o"].T
        h = norm(x, w[f"{i}.n2"]); g = h @ w[f"{i}.g"].T
        x = x + (g / (1 + np.exp(-g)) * (h @ w[f"{i}.u"].T)) @ w[f"{i}.d"].T
    return norm(x, w["norm"]) @ w["head"].T + shift

def greedy64(prompt, n):
    """Tokens due, each with how far it lies above the next best."""
    out, gaps = [], []
    for _ in range(n):
        row = logits64([*prompt, *out])[-1]; best = np.argsort(-row)
        out.append(int(best[0])); gaps.append(float(row[best[0]] - row[best[1]]))
    return out, gaps

def gap64(prompt, out, due):
    """At the first place where they part: how far the due token lies above the one that came."""
    for n, (a, b) in enumerate(zip(out, due)):
        if a != b:
            row = logits64([*prompt, *due[:n]])[-1]
            return n, (float(row[b] - row[a]) if 0 <= a < VOCAB else None)
    return None

def _folder(layers=LAYERS, shift=0.0):
    ints = lambda v: op.constant(v, np.int64); f = lambda v: op.constant(v, np.float32)
    def par(name, shape, t):
        p = op.parameter(shape, t); p.set_friendly_name(name); p.output(0).tensor.set_names({name}); return p
    ids, mask, pos = (par(n, [-1, -1], np.int64) for n in ("input_ids", "attention_mask", "position_ids")); beam = par("beam_idx", [-1], np.int32)
    batch = op.gather(op.shape_of(ids), ints([0]), ints(0)); sinks = []
    lin = lambda x, n: op.matmul(x, op.constant(W[n]), False, True)
    def norm(x, n):
        sq = op.reduce_mean(op.power(x, f([[[2.0]]])), ints([2]), keep_dims=True)
        return op.multiply(op.multiply(op.divide(f([[[1.0]]]), op.sqrt(op.add(sq, f([[[1e-5]]])))), x), op.constant(W[n].reshape(1, 1, -1)))
    half = op.multiply(op.unsqueeze(op.convert(pos, np.float32), ints(2)), op.constant(FREQ.reshape(1, 1, -1).astype(np.float32)))
    ang = op.unsqueeze(op.concat([half, half], 2), ints([1])); cos, sin = op.cos(ang), op.sin(ang)
    def rot(x):
        a = op.slice(x, ints([0]), ints([DIM // 2]), ints([1]), ints([3])); b = op.slice(x, ints([DIM // 2]), ints([DIM]), ints([1]), ints([3]))
        return op.add(op.multiply(x, cos), op.multiply(op.concat([op.multiply(b, f([[[[-1.0]]]])), a], 3), sin))
    heads = lambda x, n: op.transpose(op.reshape(x, ints([0, 0, n, DIM]), special_zero=True), ints([0, 2, 1, 3]))
    kv = op.squeeze(op.gather(op.shape_of(mask), ints([1]), ints(0)), ints(0))
    look = op.less_equal(op.unsqueeze(op.range(ints(0), kv, ints(1), "i64"), ints([0, 1, 2])), op.unsqueeze(pos, ints([1, 3])))
    bias = op.select(look, f(0.0), f(float(np.finfo(np.float32).min)))
    def past(x, name):
        shape = op.concat([batch, ints([KV]), ints([0]), ints([DIM])], 0)
        var = op.read_value(op.broadcast(f(0.0), shape), name, np.float32, [-1, KV, -1, DIM])
        whole = op.concat([op.gather(var, beam, ints(0)), x], 2); sinks.append(op.assign(whole, name))
        shape = op.concat([batch, ints([KV]), ints([HEADS // KV]), ints([1]), ints([DIM])], 0)
        return op.reshape(op.broadcast(op.unsqueeze(whole, ints(2)), shape, broadcast_spec="BIDIRECTIONAL"), ints([0, HEADS, -1, DIM]), special_zero=True)
    x = op.gather(op.constant(W["embed"]), op.convert(ids, np.int32), op.constant(0, np.int32))
    for i in range(layers):
        h = norm(x, f"{i}.n1")
        att = op.scaled_dot_product_attention(rot(heads(lin(h, f"{i}.q"), HEADS)), past(rot(heads(lin(h, f"{i}.k"), KV)), f"{i}.key"), past(heads(lin(h, f"{i}.v"), KV), f"{i}.value"), bias)
        x = op.add(x, lin(op.reshape(op.transpose(att, ints([0, 2, 1, 3])), ints([0, 0, HEADS * DIM]), special_zero=True), f"{i}.o"))
        h = norm(x, f"{i}.n2"); x = op.add(x, lin(op.multiply(op.swish(lin(h, f"{i}.g")), lin(h, f"{i}.u")), f"{i}.d"))
    y = lin(norm(x, "norm"), "head"); y = op.add(y, f(shift)) if shift else y
    res = op.result(y); res.output(0).tensor.set_names({"logits"})
    folder = pathlib.Path(tempfile.mkdtemp())
    ov.save_model(ov.Model([res], sinks, [ids, mask, pos, beam], "llama"), folder / "openvino_model.xml", compress_to_fp16=False)
    text = par("string_input", [-1], ov.Type.string); shape = op.concat([op.shape_of(text), ints([1])], 0); results = []
    for name, v in (("input_ids", 0), ("attention_mask", 1)):
        r = op.result(op.broadcast(ints(v), shape)); r.output(0).tensor.set_names({name}); results.append(r)
    ov.save_model(ov.Model(results, [text], "tokenizer"), folder / "openvino_tokenizer.xml")  # never asked: requests are token ids
    return str(folder)

F32 = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}
def pipeline(draft=False, lookup=False, shift=0.0, **scheduler):
    config = genai.SchedulerConfig(); config.num_kv_blocks = 64
    for name, value in scheduler.items(): setattr(config, name, value)
    more = {"prompt_lookup": True} if lookup else {}
    if draft: more["draft_model"] = genai.draft_model(_folder(layers=1), "CPU", **F32)
    return genai.ContinuousBatchingPipeline(_folder(shift=shift), config, "CPU", F32 | more)

def config(n, **more): return genai.GenerationConfig(**({"max_new_tokens": n, "eos_token_id": EOS, "stop_token_ids": {EOS}} | more))
def ids(prompt): return ov.Tensor(np.array([prompt], dtype=np.int64))
def generate(pipe, *requests):
    """Runs (prompt, config) pairs together; gives tokens and reason of each."""
    found = pipe.generate([ids(p) for p, _ in requests], [c for _, c in requests])
    return [(r.m_generation_ids[0], r.finish_reasons[0].name) for r in found]
