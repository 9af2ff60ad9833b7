"""The fused chain in Pallas' two backends, by the profiler, variant by variant. --out FILE [--tiny] [--count]"""
import faulthandler, sys; faulthandler.dump_traceback_later(45, file=sys.stderr)
import argparse, ctypes, functools, json, math, os, statistics, tempfile, time
from collections import defaultdict
from pathlib import Path
os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.5")
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_gpu_enable_command_buffer="
import jax, jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as gpu, triton as plt
from roofline_helpers import kernels
from jax._src.pallas.triton import lowering as L  # accepts ".cg", then looks for "cg"
L._STR_TO_CACHE_MODIFIER.update({"." + k: v for k, v in list(L._STR_TO_CACHE_MODIFIER.items())})
ap = argparse.ArgumentParser(); ap.add_argument("--out", type=Path, required=True); ap.add_argument("--tiny", action="store_true"); ap.add_argument("--count", action="store_true"); ap.add_argument("--lower", action="store_true"); ap.add_argument("--limit", type=float, default=100); o = ap.parse_args()
BEGAN = time.perf_counter()
ROWS, N = (64, 4096) if o.tiny else (65536, 4096)
EPS, KEEP, L2E = 1e-5, 1 / 0.9, 1 / math.log(2)

def gelu(u):
    k, c = 2 * math.sqrt(2 / math.pi), 0.044715
    return u / (1.0 + jnp.exp2(u * ((u * u) * (-L2E * k * c) - L2E * k)))
def normal(x, n, mean, three):
    c = x - mean(x)
    if three:
        slip = mean(c); var = mean(c * c) - slip * slip
        inv = lax.rsqrt(jnp.maximum(var, 0.0) + EPS)
        return c * inv - slip * inv
    return c * lax.rsqrt(mean(c * c) + EPS)

def triton(block=1, warps=8, stages=2, cm=None, ev=None, three=True, hoist=False, gev=None):
    def body(x, g, b, m, r, y):
        def read(ref, at, **how): return plt.load(ref.at[at], **how)
        def vec(): return [read(q, (slice(None), slice(None)), eviction_policy=gev).astype(jnp.float32) for q in (g, b)]
        mean = lambda v: jnp.sum(v, axis=1, keepdims=True) * (1 / N)
        held = vec() if hoist else None
        def step(i, _):
            at = (pl.ds(i, 1), slice(None)) if block > 1 else (slice(None), slice(None))
            v, kept, skip = (read(q, at, cache_modifier=cm, eviction_policy=ev).astype(jnp.float32) for q in (x, m, r))
            nrm = normal(v, N, mean, three)
            gg, bb = held or vec()
            out = skip + gelu(nrm * gg + bb) * (kept * KEEP)
            plt.store(y.at[at], out.astype(y.dtype))
            return 0
        if block == 1: step(0, 0)
        else: lax.fori_loop(0, block, step, 0)
    whole = pl.BlockSpec((block, N), lambda i: (i, 0)); vector = pl.BlockSpec((1, N), lambda i: (0, 0))
    def call(x, g, b, m, r):
        return pl.pallas_call(body, grid=(ROWS // block,), in_specs=[whole, vector, vector, whole, whole], out_specs=whole,
            out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype), name="chain", compiler_params=plt.CompilerParams(num_warps=warps, num_stages=stages))(x, g.reshape(1, -1), b.reshape(1, -1), m, r)
    return call

def mosaic(ctas=3, stages=2, three=False, sms=132, interpret=None, outs=1, near=False):
    P = min(sms * ctas, ROWS); S = (16, N // 16)
    def body(x, g, b, m, r, y, x_s, m_s, r_s, y_s, ready):
        p = lax.axis_index("program")
        each = -(-ROWS // P)
        count = jnp.clip(ROWS - p * each, 0, each) if near else lax.div(ROWS - p + P - 1, P)
        row = (lambda i: p * each + i) if near else (lambda i: p + i * P)
        lay = gpu.Layout.WG_STRIDED(S, vec_size=8)
        gam = gpu.load(g, layout=lay, optimized=False); bet = gpu.load(b, layout=lay, optimized=False)
        def ask(i):
            slot = lax.rem(jnp.int32(i), stages)
            for src, dst in ((x, x_s), (m, m_s), (r, r_s)):
                gpu.copy_gmem_to_smem(src.at[row(i)], dst.at[slot], ready.at[slot])
        for s in range(stages): pl.when(s < count)(functools.partial(ask, s))
        mean = lambda v: jnp.sum(v) * (1 / N)
        @pl.loop(0, count)
        def _(i):
            slot = lax.rem(i, stages)
            gpu.barrier_wait(ready.at[slot])
            v, kept, skip = (gpu.load(q.at[slot], layout=lay, optimized=False) for q in (x_s, m_s, r_s))
            nrm = normal(v.astype(jnp.float32), N, mean, three)
            out = skip.astype(jnp.float32) + gelu(nrm * gam.astype(jnp.float32) + bet.astype(jnp.float32)) * (kept.astype(jnp.float32) * KEEP)
            gpu.wait_smem_to_gmem(outs - 1, wait_read_only=True)
            out_s = y_s.at[lax.rem(i, outs)]
            out_s[...] = out.astype(jnp.bfloat16)
            gpu.commit_smem()
            gpu.copy_smem_to_gmem(out_s, y.at[row(i)])
            pl.when(i + stages < count)(lambda: ask(i + stages))
        gpu.wait_smem_to_gmem(0)
    def call(x, g, b, m, r):
        three_d = [q.reshape(ROWS, *S) for q in (x, m, r)]
        y = gpu.kernel(body, out_type=jax.ShapeDtypeStruct((ROWS, *S), x.dtype), grid=(P,), grid_names=("program",),
            scratch_types=(*(gpu.SMEM((stages, *S), jnp.bfloat16) for _ in range(3)), gpu.SMEM((outs, *S), jnp.bfloat16), gpu.Barrier(num_arrivals=3, num_barriers=stages)),
            compiler_params=gpu.CompilerParams(approx_math=True), interpret=interpret, kernel_name="chain")(three_d[0], g.reshape(S), b.reshape(S), *three_d[1:])
        return y.reshape(ROWS, N)
    return call

def package(x, g, b, m, r): return kernels.layernorm_gelu_dropout_residual(x, g, b, m, r, rate=0.1, eps=EPS)
def xla(x, g, b, m, r):
    v = normal(x.astype(jnp.float32), N, lambda v: v.mean(-1, keepdims=True), False)
    y = (v * g + b).astype(x.dtype)
    y = jax.nn.gelu(y.astype(jnp.float32), approximate=True).astype(x.dtype)
    return y * m * jnp.asarray(KEEP, x.dtype) + r
VARIANTS = {"package": package, "XLA": xla, "Triton backend": triton(), "two sums": triton(three=False),
  ".cg": triton(cm=".cg"), ".cg, two sums": triton(cm=".cg", three=False), ".ca": triton(cm=".ca"), "evict first": triton(ev="evict_first"), "vectors evict last": triton(gev="evict_last"),
  ".cg, vectors evict last, two sums": triton(cm=".cg", gev="evict_last", three=False),
  "16 warps": triton(warps=16), "4 warps": triton(warps=4), "4 warps, .cg": triton(warps=4, cm=".cg"), "16 warps, .cg": triton(warps=16, cm=".cg"), "4 warps, .cg, two sums": triton(warps=4, cm=".cg", three=False), "one warp": triton(warps=1, three=False), "2 warps, .cg": triton(warps=2, three=False, cm=".cg"),
  "4 rows, vectors held": triton(block=4, hoist=True, three=False), "16 rows, vectors held": triton(block=16, hoist=True, three=False), "16 rows, vectors held, 16 warps": triton(block=16, hoist=True, three=False, warps=16), "16 rows, vectors held, .cg": triton(block=16, hoist=True, three=False, cm=".cg"), "4 rows": triton(block=4, three=False), "4 rows, .cg": triton(block=4, three=False, cm=".cg")}
for c, s, outs, near in ((1, 2, 1, 0), (1, 3, 1, 0), (1, 3, 2, 0), (1, 4, 1, 0), (1, 4, 2, 0), (1, 4, 2, 1), (1, 6, 2, 0), (2, 1, 1, 0), (2, 2, 1, 0), (2, 2, 2, 0), (2, 2, 2, 1), (2, 3, 2, 0), (3, 2, 1, 0), (4, 2, 1, 0)): VARIANTS[f"Mosaic, {c} a multiprocessor, {s} stages, {outs} out{', near' * near}"] = mosaic(c, s, outs=outs, near=bool(near))
VARIANTS["16 warps, two sums"] = triton(warps=16, three=False); VARIANTS["16 warps, .cg, two sums"] = triton(warps=16, three=False, cm=".cg")
def arguments():
    k = jax.random.split(jax.random.key(0), 5); d = jnp.bfloat16
    x, r = (jax.jit(lambda k: jax.random.normal(k, (ROWS, N), d))(q) for q in k[:2])
    m = jax.jit(lambda k: jax.random.bernoulli(k, 0.9, (ROWS, N)).astype(d))(k[2])
    return x, 1 + 0.1 * jax.random.normal(k[3], (N,), d), 0.1 * jax.random.normal(k[4], (N,), d), m, r
if o.lower:
    specs = jax.eval_shape(arguments)
    for name, f in VARIANTS.items():
        checks = [jax.export.DisabledSafetyCheck.custom_call(c) for c in ("mosaic_gpu_v2", "__gpu$xla.gpu.triton", "triton_kernel_call")]
        mesh = jax.sharding.AbstractMesh((), (), abstract_device=jax.sharding.AbstractDevice("NVIDIA H200", "cuda", 132))
        try:
          with jax.sharding.use_abstract_mesh(mesh): jax.export.export(jax.jit(f), platforms=["cuda"], disabled_checks=checks)(*specs); print("lowered", name)
        except Exception as e: print("FAILED", name, type(e).__name__, str(e)[:300])
    if o.tiny:
        a = arguments(); want = xla(*(q.astype(jnp.float32) for q in a))
        got = mosaic(3, 2, sms=4, interpret=gpu.InterpretGPUParams())(*a).astype(jnp.float32)
        print("interpreted", float(jnp.linalg.norm(got - want) / jnp.linalg.norm(want)))
    raise SystemExit
if o.count: VARIANTS = {k: VARIANTS[k] for k in ("package", "XLA", "16 warps, .cg", "Mosaic, 2 a multiprocessor, 2 stages, 1 out")}
args = arguments()
few = [q[:256] if q.ndim == 2 else q for q in args]
want = xla(*(q.astype(jnp.float32) for q in few))
rows, names = [], {}
for i, (name, f) in enumerate(VARIANTS.items()):
    if time.perf_counter() - BEGAN > o.limit: print("time up at", name); break
    def g(*a, f=f): return f(*a)
    g.__name__ = f"chain{i}"
    try:
        t = time.perf_counter(); p = jax.jit(g).lower(*args).compile(); y = p(*args); y.block_until_ready()
        e = float(jnp.linalg.norm(y[:256].astype(jnp.float32) - want) / jnp.linalg.norm(want))
        rows.append(dict(name=name, error=e, compile=time.perf_counter() - t, p=p)); names[f"jit_chain{i}"] = rows[-1]; del y
    except Exception as e: rows.append(dict(name=name, failed=f"{type(e).__name__}: {e}"[:300])); print(name, rows[-1]["failed"][:200], flush=True)
print(f"[{time.perf_counter() - BEGAN:.0f}] compiled", flush=True)
if o.count:
    cuda = ctypes.CDLL("libcuda.so.1")
    for row in rows:
        if "p" not in row: continue
        row["p"](*args).block_until_ready(); cuda.cuProfilerStart(); row["p"](*args).block_until_ready(); cuda.cuProfilerStop()
    o.out.write_text(json.dumps([r["name"] for r in rows if "p" in r])); os._exit(0)
from roofline_helpers.device.machine import device_facts, now, software_versions
from roofline_helpers.device.trace import read_trace
per = defaultdict(lambda: defaultdict(list)); calls = 30
for turn in range(2):
    with tempfile.TemporaryDirectory() as d:
        opts = jax.profiler.ProfileOptions(); opts.python_tracer_level = 0
        jax.profiler.start_trace(d, profiler_options=opts)
        for row in rows:
            if "p" not in row: continue
            for _ in range(calls): y = row["p"](*args)
            y.block_until_ready(); del y
        jax.profiler.stop_trace()
        for e in read_trace(d).events: per[e.program][(turn, e.op)].append(e.seconds); names.get(e.program, {}).setdefault("details", {})[e.op] = e.details
for program, row in names.items():
    turns = []
    for turn in range(2):
        turns.append(sum(statistics.median(v[5:]) for (t, _), v in per[program].items() if t == turn))
    row["seconds"] = turns; row.pop("p")
    print("%-45s %.1f %.1f µs  %.2f TB/s  error %.1e" % (row["name"], *(1e6 * t for t in turns), 4 * ROWS * N * 2 / max(min(turns), 1e-9) / 1e12, row["error"]), flush=True)
o.out.write_text(json.dumps({"device": device_facts(), "software": software_versions(), "date": now(), "command": "chain.py", "rows": rows}))
os._exit(0)
