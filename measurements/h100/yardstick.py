"""Small kernels' times from the profiler, warm and cold: XLA's. --out FILE [--tiny]"""
import os, time, json, argparse, statistics, tempfile
os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"] = "0.6"
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_gpu_enable_command_buffer=" 
from concurrent.futures import ThreadPoolExecutor
from collections import defaultdict
from pathlib import Path
import jax, jax.numpy as jnp
from roofline_helpers.device.machine import device_facts, now, software_versions
from roofline_helpers.device.trace import read_trace
BEGAN = time.perf_counter()
def spent(): return time.perf_counter() - BEGAN
ap = argparse.ArgumentParser(); ap.add_argument("--out", type=Path, required=True); ap.add_argument("--limit", type=float, default=90)
ap.add_argument("--tiny", action="store_true"); o = ap.parse_args()
C = 4096
def norm(x):
    w = x.astype(jnp.float32)
    return (w * jax.lax.rsqrt(jnp.mean(w * w, -1, keepdims=True) + 1e-5)).astype(x.dtype)
KINDS = {  # name: function, arrays read, arrays written (of the full size)
    "add one": (lambda x: x + jnp.ones((), x.dtype), 1, 1), "add": (lambda x, y: x + y, 2, 1), "gelu": (jax.nn.gelu, 1, 1),
    "row sums": (lambda x: jnp.sum(x, -1, dtype=jnp.float32), 1, 0), "column sums": (lambda x: jnp.sum(x, 0, dtype=jnp.float32), 1, 0),
    "RMSNorm": (norm, 1, 1), "softmax": (lambda x: jax.nn.softmax(x, -1), 1, 1),
    "cast to fp32": (lambda x: x.astype(jnp.float32), 1, 2), "transpose": (lambda x: x.T + jnp.ones((), x.dtype), 1, 1)}
TYPES = {"bf16": jnp.bfloat16, "fp32": jnp.float32, "int8": jnp.int8, "fp8": jnp.float8_e4m3fn}
SIZES = (0.1, 1) if o.tiny else (0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000, 3000)
items = []
for kind, (f, reads, writes) in KINDS.items():
    for dt in ("bf16", "fp32", "int8", "fp8"):
        if dt in ("int8", "fp8") and kind not in ("add one", "add"): continue
        if kind == "cast to fp32" and dt != "bf16": continue
        for mb in SIZES:
            if dt in ("int8", "fp8") and mb < 100 and not o.tiny: continue
            rows = max(1, round(mb * 1e6 / (C * jnp.dtype(TYPES[dt]).itemsize * (reads + writes))))
            items.append((kind, dt, mb, rows, reads, writes, f))
def build(i):
    kind, dt, mb, rows, reads, writes, f = items[i]
    def g(*a): return f(*a)
    g.__name__ = f"yard{i}"
    s = jax.ShapeDtypeStruct((rows, C), TYPES[dt])
    return jax.jit(g).lower(*[s] * reads).compile()
pool = ThreadPoolExecutor(14); fs = [pool.submit(build, i) for i in range(len(items))]
flush_x = jnp.ones(64 * 2**20 if not o.tiny else 1024, jnp.float32)
flush = jax.jit(lambda x: x * 1.0001)
jax.block_until_ready(flush(flush_x))
for f in fs:
    try: f.result(timeout=max(1, o.limit * .5 - spent()))
    except Exception as e: print("compile", type(e).__name__, str(e)[:200], flush=True)
print(f"[{spent():.0f}] compiled", len(items), flush=True)
@jax.jit
def _n(key): return jax.random.normal(key, (1,))
def draw(rows, dt, seed):
    return jax.jit(lambda k: (jax.random.normal(k, (rows, C), jnp.float32) * (30 if dt == "int8" else 1)).astype(TYPES[dt]))(jax.random.key(seed))
record = {"schema": "roofline_helpers.small_kernels/1", "what": "seconds of XLA's kernels by the profiler, [rows, 4096]; cold: 256 MB were read and written before each", "device": device_facts(), "software": software_versions(), "date": now(), "command": "yardstick.py", "rows": []}
seen = {}
times = {True: defaultdict(list), False: defaultdict(list)}
for lo in range(0, len(items), 30):
    chunk = range(lo, min(lo + 30, len(items)))
    if spent() > o.limit - 8: print("time up at", lo, flush=True); break
    args = {}
    for i in chunk:
        kind, dt, mb, rows, reads, writes, f = items[i]
        args[i] = [draw(rows, dt, s) for s in range(reads)]
        try: jax.block_until_ready(fs[i].result(timeout=1)(*args[i]))
        except Exception as e: print(kind, dt, mb, str(e)[:200]); args.pop(i)
    for cold in (True, False):
        with tempfile.TemporaryDirectory() as d:
            opts = jax.profiler.ProfileOptions(); opts.python_tracer_level = 0
            jax.profiler.start_trace(d, profiler_options=opts)
            for i in args:
                p = fs[i].result(); out = None
                for _ in range(12):
                    if cold: jax.block_until_ready(flush(flush_x))
                    out = p(*args[i])
                    if cold: jax.block_until_ready(out)
                jax.block_until_ready(out)
            jax.profiler.stop_trace()
            try: trace = read_trace(d)
            except Exception as e: print("trace", e); continue
            for e in trace.events: times[cold][e.program].append((e.op, e.seconds)); seen.setdefault(e.program, {})[e.op] = e.details
    for i in args:
        kind, dt, mb, rows, reads, writes, f = items[i]
        row = dict(kind=kind, dtype=dt, rows=rows, bytes=rows * C * jnp.dtype(TYPES[dt]).itemsize * (reads + writes))
        if reads and not writes: row["bytes"] += 4 * (rows if kind == "row sums" else C)
        for cold in (True, False):
            got = times[cold].get(f"jit_yard{i}", [])
            per = defaultdict(list)
            for op, s in got: per[op].append(s)
            row["cold" if cold else "warm"] = sum(statistics.median(v[2:] or v) for v in per.values())
            row["kernels"] = len(per); row["details"] = seen.get(f"jit_yard{i}")
        record["rows"].append(row)
        print(kind, dt, mb, "cold %.2f warm %.2f µs, %.2f TB/s cold, kernels %d" % (1e6*row["cold"], 1e6*row["warm"], row["bytes"]/max(row["cold"],1e-9)/1e12, row["kernels"]), flush=True)
    o.out.write_text(json.dumps(record))
os._exit(0)
