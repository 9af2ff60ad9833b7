"""Decode attention at batch 1 over long caches: one kernel a head, and split. --out FILE [--tiny]"""
import os, time, json, argparse, statistics, functools
os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"] = "0.6"
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
import jax, jax.numpy as jnp
from jax.experimental import pallas as pl
from roofline_helpers.device.machine import device_facts, now, software_versions
BEGAN = time.perf_counter()
def spent(): return time.perf_counter() - BEGAN
ap = argparse.ArgumentParser(); ap.add_argument("--out", type=Path, required=True); ap.add_argument("--limit", type=float, default=70)
ap.add_argument("--tiny", action="store_true"); o = ap.parse_args()
gpu = jax.default_backend() == "gpu"
HK, GR, W = (2, 4, 128) if o.tiny else (8, 4, 128)
L = 2 if o.tiny else 4
def einsum(q, k, v):  # q [1, H, W], cache [1, HK, T, W]
    q = q.reshape(1, HK, GR, W)
    s = jnp.einsum("bghd,bgtd->bght", q, k, preferred_element_type=jnp.float32) * W**-0.5
    p = jax.nn.softmax(s, -1).astype(v.dtype)
    return jnp.einsum("bght,bgtd->bghd", p, v).reshape(1, HK * GR, W)
def cudnn(q, k, v):  # cache [1, T, HK, W]
    return jax.nn.dot_product_attention(q[:, None], k, v, implementation="cudnn" if gpu else "xla")[:, 0]
def split_jax(q, k, v, *, splits):
    q = q.reshape(1, HK, GR, W); t = k.shape[2]
    k, v = (x.reshape(1, HK, splits, t // splits, W) for x in (k, v))
    s = jnp.einsum("bghd,bgstd->bgsht", q, k, preferred_element_type=jnp.float32) * W**-0.5
    m = s.max(-1, keepdims=True); p = jnp.exp(s - m); l = p.sum(-1)
    part = jnp.einsum("bgsht,bgstd->bgshd", p.astype(v.dtype), v, preferred_element_type=jnp.float32)
    top = m.max(2, keepdims=True); w = jnp.exp(m - top)[..., 0]
    out = (part * w[..., None]).sum(2) / (l * w).sum(2)[..., None]
    return out.reshape(1, HK * GR, W).astype(q.dtype)
def kernel(q_ref, k_ref, v_ref, o_ref, l_ref, *, tile, tokens):
    q = q_ref[...]
    base = pl.program_id(1) * tokens
    def body(i, c):
        m, l, acc = c
        k = k_ref[pl.ds(base + i * tile, tile), :]; v = v_ref[pl.ds(base + i * tile, tile), :]
        s = jnp.dot(q, k.T, preferred_element_type=jnp.float32) * (W**-0.5)
        n = jnp.maximum(m, s.max(-1)); p = jnp.exp(s - n[:, None]); a = jnp.exp(m - n)
        return n, l * a + p.sum(-1), acc * a[:, None] + jnp.dot(p.astype(v.dtype), v, preferred_element_type=jnp.float32)
    r = q.shape[0]
    m, l, acc = jax.lax.fori_loop(0, tokens // tile, body, (jnp.full(r, -1e30, jnp.float32), jnp.zeros(r, jnp.float32), jnp.zeros((r, W), jnp.float32)))
    o_ref[...] = acc / l[:, None]; l_ref[...] = m + jnp.log(l)
def pallas(q, k, v, *, splits, tile, warps, stages):
    t = k.shape[2]; R = 16
    qq = jnp.pad(q.reshape(HK, GR, W), ((0, 0), (0, R - GR), (0, 0)))
    opts = {"interpret": True}
    if gpu:
        from jax.experimental.pallas import triton
        opts = {"compiler_params": triton.CompilerParams(num_warps=warps, num_stages=stages)}
    cache = pl.BlockSpec((None, None, t, W), lambda g, s: (0, g, 0, 0))
    out, lse = pl.pallas_call(functools.partial(kernel, tile=tile, tokens=t // splits), grid=(HK, splits),
        out_shape=[jax.ShapeDtypeStruct((splits, HK, R, W), jnp.float32), jax.ShapeDtypeStruct((splits, HK, R), jnp.float32)],
        in_specs=[pl.BlockSpec((None, R, W), lambda g, s: (g, 0, 0)), cache, cache],
        out_specs=[pl.BlockSpec((None, None, R, W), lambda g, s: (s, g, 0, 0)), pl.BlockSpec((None, None, R), lambda g, s: (s, g, 0))], name="split_kv", **opts)(qq, k, v)
    out, lse = out[:, :, :GR], lse[:, :, :GR]
    w = jax.nn.softmax(lse, axis=0)[..., None]
    return (out * w).sum(0).reshape(1, HK * GR, W).astype(q.dtype)
WAYS = {"one kernel a step of einsum": (einsum, False), "cuDNN": (cudnn, True)}
for s in ((4,) if o.tiny else (16, 64)): WAYS[f"split in JAX, {s}"] = (functools.partial(split_jax, splits=s), False)
for s in ((1, 4) if o.tiny else (1, 4, 16, 32, 64)): WAYS[f"Pallas, {s} splits"] = (functools.partial(pallas, splits=s, tile=64, warps=4, stages=3), False)
if not o.tiny: WAYS["Pallas, 32 splits of tiles of 128"] = (functools.partial(pallas, splits=32, tile=128, warps=8, stages=3), False)
LENGTHS = (512,) if o.tiny else (2048, 8192, 32768, 65536, 131072)
items = [(t, way) for t in LENGTHS for way in WAYS]
def size(t, bytoken): return (1, t, HK, W) if bytoken else (1, HK, t, W)
def build(it):
    t, way = it; f, bytoken = WAYS[way]
    c = jax.ShapeDtypeStruct(size(t, bytoken), jnp.bfloat16)
    def run(q, caches): return [f(q, *c) for c in caches]
    return jax.jit(run).lower(jax.ShapeDtypeStruct((1, HK * GR, W), jnp.bfloat16), [(c, c)] * L).compile()
pool = ThreadPoolExecutor(14); fs = [pool.submit(build, i) for i in items]
for it, f in zip(items, fs):
    try: f.result(timeout=max(1, o.limit * .65 - spent()))
    except Exception as e: print("compile", it, type(e).__name__, str(e)[:150].replace("\n", " "), flush=True)
print(f"[{spent():.0f}] compiled", flush=True)
record = {"schema": "roofline_helpers.split_kv/1", "what": f"attention of one new token, batch 1, {HK * GR} heads, {HK} of keys and values, {W} wide, bf16: seconds a layer, {L} layers' caches in turn (at 2048 and 8192 tokens they stay in the L2)", "device": device_facts(), "software": software_versions(), "date": now(), "command": "split_kv.py", "rows": []}
have = {}
for it, f in zip(items, fs):
    t, way = it; fn, bytoken = WAYS[way]
    if spent() > o.limit: break
    row = dict(tokens=t, way=way, bytes=2 * 2 * HK * t * W)
    try:
        program = f.result(timeout=1)
        if t not in have:
            have.clear(); ks = jax.random.split(jax.random.key(t), 2 * L + 1)
            have[t] = [tuple(jax.random.normal(k, size(t, False), jnp.bfloat16) for k in ks[2*i:2*i+2]) for i in range(L)]
        q = jax.random.normal(jax.random.key(5), (1, HK * GR, W), jnp.bfloat16)
        caches = [tuple(x.swapaxes(1, 2) for x in c) for c in have[t]] if bytoken else have[t]
        out = program(q, caches)
        k, v = (x.astype(jnp.float32) for x in have[t][0])
        wanted = einsum(q.astype(jnp.float32), k, v)
        row["error"] = float(jnp.linalg.norm(out[0].astype(jnp.float32) - wanted) / jnp.linalg.norm(wanted)); del k, v
        def run(c):
            b = time.perf_counter()
            for _ in range(c): out = program(q, caches)
            jax.block_until_ready(out); return (time.perf_counter() - b) / c / L
        run(2); c = max(3, min(100, int(0.03 / (run(2) * L))))
        row["seconds"] = [run(c) for _ in range(5)]
    except Exception as e: row["failed"] = f"{type(e).__name__}: {e}"[:300]
    record["rows"].append(row); o.out.write_text(json.dumps(record))
    print(f"[{spent():.0f}]", t, way, row.get("failed", "")[:150] or "%.2f µs, %.2f TB/s, error %.1e" % (1e6 * statistics.median(row["seconds"]), row["bytes"] / statistics.median(row["seconds"]) / 1e12, row["error"]), flush=True)
os._exit(0)
