"""Weight-only int8 and int4 with scales, and bf16, at small batches, cold weights. --out FILE [--tiny]"""
import os, time, json, argparse, statistics, functools
os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"] = "0.9"
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
import jax, jax.numpy as jnp
from jax.experimental import pallas as pl
from roofline_helpers.device.machine import device_facts, now, software_versions
BEGAN = time.perf_counter()
def spent(): return time.perf_counter() - BEGAN
ap = argparse.ArgumentParser(); ap.add_argument("--out", type=Path, required=True); ap.add_argument("--limit", type=float, default=100)
ap.add_argument("--tiny", action="store_true"); o = ap.parse_args()
gpu = jax.default_backend() == "gpu"
G = 128  # rows of the weights that share a scale, int4
COPIES = 2 if o.tiny else 8
def kernel(x_ref, w_ref, s_ref, y_ref, *, bits, depth, rows, groups):
    # program (j, s): columns j, rows s * rows … of the weights; int4: low nibbles rows, high nibbles rows of the other half
    tile = y_ref.shape[-1]
    half = pl.num_programs(1) * rows
    base = pl.program_id(1) * rows
    def body(i, acc):
        k = base + i * depth
        w = w_ref[pl.ds(k, depth), :]
        if bits == 8:
            x = x_ref[:, pl.ds(k, depth)]
            return acc + jnp.dot(x, w.astype(jnp.bfloat16), preferred_element_type=jnp.float32)
        w = w.astype(jnp.int32)
        lo = ((w << 28) >> 28).astype(jnp.bfloat16); hi = (w >> 4).astype(jnp.bfloat16)
        a = jnp.dot(x_ref[:, pl.ds(k, depth)], lo, preferred_element_type=jnp.float32)
        b = jnp.dot(x_ref[:, pl.ds(half + k, depth)], hi, preferred_element_type=jnp.float32)
        sa = s_ref[pl.ds(k // G, 1), :].astype(jnp.float32); sb = s_ref[pl.ds((half + k) // G, 1), :].astype(jnp.float32)
        return acc + a * sa + b * sb
    acc = jax.lax.fori_loop(0, rows // depth, body, jnp.zeros((x_ref.shape[0], tile), jnp.float32))
    if bits == 8: acc = acc * s_ref[...].astype(jnp.float32)
    y_ref[...] = acc
def pallas(x, w, s, *, bits, tile, splits, warps, stages):
    m, k = x.shape; stored, n = w.shape
    rows_m = max(16, m)
    x = jnp.pad(x, ((0, rows_m - m), (0, 0)))
    opts = {"interpret": True}
    if gpu:
        from jax.experimental.pallas import triton
        opts = {"compiler_params": triton.CompilerParams(num_warps=warps, num_stages=stages)}
    out = pl.pallas_call(functools.partial(kernel, bits=bits, depth=G if bits == 4 else 128, rows=stored // splits, groups=0),
        grid=(n // tile, splits), out_shape=jax.ShapeDtypeStruct((splits, rows_m, n), jnp.float32),
        in_specs=[pl.BlockSpec((rows_m, k), lambda j, i: (0, 0)), pl.BlockSpec((stored, tile), lambda j, i: (0, j)), pl.BlockSpec((s.shape[0], tile), lambda j, i: (0, j))],
        out_specs=pl.BlockSpec((None, rows_m, tile), lambda j, i: (i, 0, j)), name=f"int{bits}", **opts)(x, w, s)
    return out.sum(0)[:m].astype(jnp.bfloat16)
def bf16(x, w): return x @ w
def xla8(x, w, s): return (x @ w.astype(jnp.bfloat16)) * s[0]
def xla4(x, w, s):  # groups' scales
    k, n = w.shape
    wide = w.astype(jnp.bfloat16).reshape(k // G, G, n) * s[:, None]
    return x @ wide.reshape(k, n)
def xla4c(x, w, s): return (x @ w.astype(jnp.bfloat16)) * s[0]
SH = {"gate_up": (4096, 28672), "down": (14336, 4096)} if not o.tiny else {"a": (512, 256)}
def ways(k, n):
    w = {"bf16, cuBLAS": bf16, "int8, XLA": xla8, "int4 by channel, XLA": xla4c, "int4 by group, XLA": xla4}
    for bits in (8, 4):
        for tile, splits, warps, stages in (((64, 4 if n < 8192 else 1, 4, 4), (128, 8 if n < 8192 else 2, 4, 4), (32, 2 if n < 8192 else 1, 4, 5)) if not o.tiny else ((64, 2, 4, 2),)):
            w[f"int{bits}, Pallas {tile}x{splits}"] = functools.partial(pallas, bits=bits, tile=tile, splits=splits, warps=warps, stages=stages)
    return w
def specs(way, m, k, n):
    S = jax.ShapeDtypeStruct; x = S((m, k), jnp.bfloat16)
    if way.startswith("bf16"): return x, (S((k, n), jnp.bfloat16),)
    if way.startswith("int8"): return x, (S((k, n), jnp.int8), S((1, n), jnp.bfloat16))
    if "Pallas" in way: return x, (S((k // 2, n), jnp.int8), S((k // G, n), jnp.bfloat16))
    if "group" in way: return x, (S((k, n), jnp.int4), S((k // G, n), jnp.bfloat16))
    return x, (S((k, n), jnp.int4), S((1, n), jnp.bfloat16))
def stored(way, k, n):
    return 2 * k * n if way.startswith("bf16") else (k * n + 2 * n if way.startswith("int8") else k * n // 2 + (2 * (k // G) * n if "group" in way or "Pallas" in way else 2 * n))
def dense(way, w):
    if way.startswith("bf16"): return w[0].astype(jnp.float32)
    q, s = w; s = s.astype(jnp.float32)
    if "Pallas" in way and way.startswith("int4"):
        i = q.astype(jnp.int32); q = jnp.concatenate([(i << 28) >> 28, i >> 4])
    q = q.astype(jnp.float32)
    return q * (s if s.shape[0] == 1 else jnp.repeat(s, G, axis=0))
items = [(name, way, f, m, k, n) for name, (k, n) in SH.items() for way, f in ways(k, n).items() for m in ((4,) if o.tiny else (1, 4, 16, 32, 64))]
def build(it):
    name, way, f, m, k, n = it
    x, w = specs(way, m, k, n)
    many = [w] * COPIES
    def run(x, many): return [f(x, *w) for w in many]
    return jax.jit(run).lower(x, many).compile()
pool = ThreadPoolExecutor(14); fs = [pool.submit(build, i) for i in items]
for it, f in zip(items, fs):
    try: f.result(timeout=max(1, o.limit * .65 - spent()))
    except Exception as e: print("compile", it[:2], it[3], type(e).__name__, str(e)[:150].replace("\n", " "), flush=True)
print(f"[{spent():.0f}] compiled", flush=True)
record = {"schema": "roofline_helpers.low_bits/1", "what": f"x [m, K] in bf16 times weights [K, N], seconds a product; {COPIES} weights in turn, so that none is in a cache; int4 by groups of {G} rows", "device": device_facts(), "software": software_versions(), "date": now(), "command": "low_bits.py", "rows": []}
def make(s, key):
    if s.dtype == jnp.int4: return jax.jit(lambda k: jax.random.randint(k, s.shape, -8, 8, jnp.int8).astype(jnp.int4))(key)
    if s.dtype == jnp.int8: return jax.jit(lambda k: jax.random.randint(k, s.shape, -128, 128, jnp.int32).astype(jnp.int8))(key)
    if s.shape[0] == 1 or s.shape[0] * G == dict((v[0], v[0]) for v in SH.values()).get(s.shape[0] * G): return jax.jit(lambda k: (jax.random.uniform(k, s.shape, minval=.5, maxval=1.5) * 0.01).astype(s.dtype))(key)
    return jax.jit(lambda k: jax.random.normal(k, s.shape, s.dtype))(key)
have = {}
for it, f in zip(items, fs):
    name, way, fn, m, k, n = it
    if spent() > o.limit: break
    row = dict(matrix=name, m=m, k=k, n=n, way=way, bytes=stored(way, k, n) + 2 * m * (k + n))
    try:
        program = f.result(timeout=1)
        sx, sw = specs(way, m, k, n)
        key = (name, tuple((s.shape, s.dtype) for s in sw))
        if key not in have:
            have.clear(); have[key] = [tuple(make(s, jax.random.key(10 * c + i)) for i, s in enumerate(sw)) for c in range(COPIES)]
        many = have[key]; x = jax.random.normal(jax.random.key(99), sx.shape, jnp.bfloat16)
        out = program(x, many)
        wanted = x.astype(jnp.float32) @ dense(way, many[0])
        row["error"] = float(jnp.linalg.norm(out[0].astype(jnp.float32) - wanted) / jnp.linalg.norm(wanted)); del wanted
        def run(c):
            t = time.perf_counter()
            for _ in range(c): out = program(x, many)
            jax.block_until_ready(out); return (time.perf_counter() - t) / c / COPIES
        run(2); c = max(3, min(60, int(0.03 / (run(2) * COPIES))))
        row["seconds"] = [run(c) for _ in range(5)]
    except Exception as e: row["failed"] = f"{type(e).__name__}: {e}"[:300]
    record["rows"].append(row); o.out.write_text(json.dumps(record))
    print(f"[{spent():.0f}]", name, way, m, row.get("failed", "")[:150] or "%.2f µs, %.2f TB/s, error %.1e" % (1e6 * statistics.median(row["seconds"]), row["bytes"] / statistics.median(row["seconds"]) / 1e12, row["error"]), flush=True)
os._exit(0)
