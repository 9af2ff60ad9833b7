"""Attention inside one jit of 24 layers: cuDNN, our Pallas kernel. --out FILE [--tiny]"""
import os, time, json, argparse, statistics
os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"] = "0.9"
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
import jax, jax.numpy as jnp
from roofline_helpers import kernels
from roofline_helpers.device.machine import device_facts, now, software_versions
BEGAN = time.perf_counter()
def spent(): return time.perf_counter() - BEGAN
ap = argparse.ArgumentParser(); ap.add_argument("--out", type=Path, required=True); ap.add_argument("--limit", type=float, default=100)
ap.add_argument("--tiny", action="store_true"); o = ap.parse_args()
gpu = jax.default_backend() == "gpu"
B, H, W, N = (1, 2, 64, 2) if o.tiny else (2, 16, 128, 24)
def one(source, causal):
    if source == "cudnn":
        return lambda q, k, v: jax.nn.dot_product_attention(q, k, v, is_causal=causal, implementation="cudnn" if gpu else "xla")
    return lambda q, k, v: kernels.attention(q, k, v, causal=causal)
def chain(source, causal):
    f = one(source, causal)
    def run(q, ks, vs):
        for k, v in zip(ks, vs): q = f(q, k, v)
        return q
    return run
def gradient(source, causal):
    f = chain(source, causal)
    def run(q, ks, vs, do):
        out, back = jax.vjp(f, q, ks, vs)
        return back(do)
    return run
items = []
for length in (128,) if o.tiny else (256, 512, 1024, 2048, 4096, 8192):
    for causal in (False, True):
        for source in ("cudnn", "pallas"):
            for way in ("forward", "both"): items.append((length, causal, source, way))
def size(length, source): return (B, length, H, W) if source == "cudnn" else (B, H, length, W)
def build(item):
    length, causal, source, way = item
    s = jax.ShapeDtypeStruct(size(length, source), jnp.bfloat16); many = [s] * N
    args = (s, many, many) + ((s,) if way == "both" else ())
    f = (gradient if way == "both" else chain)(source, causal)
    return jax.jit(f).lower(*args).compile()
pool = ThreadPoolExecutor(14); fs = [pool.submit(build, i) for i in items]
for f in fs:
    try: f.result(timeout=max(1, o.limit * .7 - spent()))
    except Exception as e: print("compile", type(e).__name__, str(e)[:200], flush=True)
print(f"[{spent():.0f}] compiled", flush=True)
record = {"schema": "roofline_helpers.attention_in_jit/1", "what": f"attention {B}×{H}×length×{W} bf16, {N} layers in one program, each with its own keys and values, seconds a layer; 'both' is forward and backward",
          "device": device_facts(), "software": software_versions(), "date": now(), "command": "attention_jit.py", "rows": []}
draw = jax.jit(lambda key, s: jax.random.normal(key, s, jnp.bfloat16), static_argnums=1)
have = {}
for item, f in zip(items, fs):
    length, causal, source, way = item
    row = dict(length=length, causal=causal, source=source, way=way)
    if spent() > o.limit: break
    try:
        program = f.result(timeout=1)
        key = (length, source)
        if key not in have:
            have.clear(); s = size(length, source)
            ks = jax.random.split(jax.random.key(0), 2 * N + 2)
            have[key] = (draw(ks[0], s), [draw(k, s) for k in ks[1:N+1]], [draw(k, s) for k in ks[N+1:2*N+1]], draw(ks[-1], s))
        a = have[key]; a = a if way == "both" else a[:3]
        def run(n):
            jax.block_until_ready(a); t = time.perf_counter()
            for _ in range(n): out = program(*a)
            jax.block_until_ready(out); return (time.perf_counter() - t) / n
        run(2); n = max(3, min(100, int(0.06 / run(2))))
        row["seconds"] = [run(n) / N for _ in range(5)]
    except Exception as e: row["failed"] = f"{type(e).__name__}: {e}"[:300]
    record["rows"].append(row); o.out.write_text(json.dumps(record))
    print(f"[{spent():.0f}]", length, causal, source, way, row.get("failed") or f"{1e6*statistics.median(row['seconds']):.2f} µs", flush=True)
os._exit(0)
