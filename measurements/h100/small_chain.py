"""The chain at small sizes inside one program: fused, and a kernel an operation. --out FILE"""
import argparse, json, os, statistics, time
from pathlib import Path
import jax, jax.numpy as jnp
from jax import lax
from roofline_helpers.device.machine import device_facts, now, software_versions
ap = argparse.ArgumentParser(); ap.add_argument("--out", type=Path, required=True); ap.add_argument("--tiny", action="store_true"); o = ap.parse_args()
N, TURNS = 4096, 4 if o.tiny else 50
def norm(x, g, b):
    w = x.astype(jnp.float32); c = w - w.mean(-1, keepdims=True)
    return (c * lax.rsqrt((c * c).mean(-1, keepdims=True) + 1e-5) * g + b).astype(x.dtype)
def gelu(x): return jax.nn.gelu(x.astype(jnp.float32), approximate=True).astype(x.dtype)
def drop(x, m): return x * m * jnp.asarray(1 / 0.9, x.dtype)
def chain(apart, x, g, b, m, r):
    stop = lax.optimization_barrier if apart else (lambda v: v)
    return stop(stop(drop(stop(gelu(stop(norm(x, g, b)))), m)) + r)
def program(apart, options):
    def f(x, g, b, m, r):
        for _ in range(TURNS): x = lax.optimization_barrier(chain(apart, x, g, b, m, r))
        return x
    return jax.jit(f, compiler_options=options)
rows = []
for n in (16, 256, 1024, 4096, 16384):
    k = jax.random.split(jax.random.key(0), 5); d = jnp.bfloat16
    a = (jax.random.normal(k[0], (n, N), d), 1 + 0.1 * jax.random.normal(k[1], (N,), d), 0.1 * jax.random.normal(k[2], (N,), d), jax.random.bernoulli(k[3], 0.9, (n, N)).astype(d), jax.random.normal(k[4], (n, N), d))
    for graphs, options in (("graphs", {}), ("no graphs", {"xla_gpu_enable_command_buffer": ""})):
        if o.tiny: options = {}
        outs = []
        for apart in (False, True):
            p = program(apart, options).lower(*a).compile(); y = p(*a); y.block_until_ready(); outs.append(y.astype(jnp.float32)); runs = []
            text = p.as_text(); kernels = sum(line.lstrip().startswith(("%", "ROOT")) and ("fusion(" in line or "custom-call(" in line) for line in text[text.index("ENTRY"):].splitlines())
            for _ in range(12):
                t = time.perf_counter()
                for _ in range(10): y = p(*a)
                y.block_until_ready(); runs.append((time.perf_counter() - t) / 10 / TURNS)
            rows.append(dict(rows=n, way="four kernels" if apart else "one kernel", graphs=graphs, kernels=kernels / TURNS, seconds=runs[2:]))
            print(n, rows[-1]["way"], graphs, "kernels a chain %.1f" % rows[-1]["kernels"], "%.2f µs" % (1e6 * statistics.median(runs[2:])), flush=True)
        print("  differ", float(jnp.linalg.norm(outs[0] - outs[1]) / jnp.linalg.norm(outs[1])))
o.out.write_text(json.dumps({"device": device_facts(), "software": software_versions(), "date": now(), "command": "small_chain.py", "turns": TURNS, "rows": rows})); os._exit(0)
