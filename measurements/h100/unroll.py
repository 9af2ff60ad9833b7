"""XLA's elementwise loops with other unroll factors. --out FILE; the factor as a compiler option"""
import argparse, json, os, statistics, tempfile, sys
from collections import defaultdict
from pathlib import Path
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_gpu_enable_command_buffer="; os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"] = "0.5"
import jax, jax.numpy as jnp
from roofline_helpers.device.machine import device_facts, now, software_versions
from roofline_helpers.device.trace import read_trace
ap = argparse.ArgumentParser(); ap.add_argument("--out", type=Path, required=True); o = ap.parse_args()
KINDS = {"add one": lambda x: x + jnp.ones((), x.dtype), "add": lambda x, y: x + y, "gelu": jax.nn.gelu, "cast to fp32": lambda x: x.astype(jnp.float32), "swiglu": lambda g, u: jax.nn.silu(g) * u}
TYPES = {"int8": jnp.int8, "fp8": jnp.float8_e4m3fn, "bf16": jnp.bfloat16, "fp32": jnp.float32}
WAYS = {"": {}, "8": {"xla_gpu_experimental_max_unroll_factor": 8}, "16": {"xla_gpu_experimental_max_unroll_factor": 16}, "tuned": {"xla_gpu_native_emitter_tune_unroll_factor_for_loops": True}}
made = {}; rows = []
for dt, T in TYPES.items():
    n = 2**29 // jnp.dtype(T).itemsize // 4096
    mk = jax.jit(lambda k: (jax.random.normal(k, (n, 4096), jnp.float32) * (30 if dt == "int8" else 1)).astype(T)); xs = [mk(jax.random.key(s)) for s in range(2)]
    run = {}
    for kind, f in KINDS.items():
        if (dt in ("int8", "fp8") and kind in ("gelu", "swiglu", "cast to fp32")) or (kind == "cast to fp32" and dt != "bf16"): continue
        a = xs if kind in ("add", "swiglu") else xs[:1]
        for way, options in WAYS.items():
            def g(*a, f=f): return f(*a)
            g.__name__ = f"u{len(made)}"
            try: p = jax.jit(g, compiler_options=options).lower(*a).compile(); made[f"jit_{g.__name__}"] = row = dict(kind=kind, dtype=dt, unroll=way, bytes=sum(q.nbytes for q in a) + n * 4096 * (4 if "cast" in kind else jnp.dtype(T).itemsize)); run[g.__name__] = (p, a)
            except Exception as e: print(kind, dt, way, type(e).__name__, str(e)[:160], flush=True)
    with tempfile.TemporaryDirectory() as d:
        opts = jax.profiler.ProfileOptions(); opts.python_tracer_level = 0
        for p, a in run.values(): p(*a).block_until_ready()
        jax.profiler.start_trace(d, profiler_options=opts)
        for p, a in run.values():
            for _ in range(12): y = p(*a)
            y.block_until_ready()
        jax.profiler.stop_trace()
        per = defaultdict(list); det = {}
        for e in read_trace(d).events: per[e.program].append(e.seconds); det[e.program] = e.details
    for name in run:
        row = made["jit_" + name]; v = per["jit_" + name]; row |= dict(seconds=statistics.median(v[2:]), details=det.get("jit_" + name, "")); rows.append(row)
        print(f"{row['kind']:14}{dt:6}{row['unroll']:6} {1e6*row['seconds']:8.1f} µs {row['bytes']/row['seconds']/1e12:.2f} TB/s", row["details"][row["details"].find("grid"):], flush=True)
o.out.write_text(json.dumps({"device": device_facts(), "software": software_versions(), "date": now(), "command": "unroll.py", "rows": rows})); os._exit(0)
