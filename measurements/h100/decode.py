"""The decode ladder's last rung: what a layer costs beside its bytes, and another head. --out FILE [--tiny] [--count]"""
import faulthandler, sys; faulthandler.dump_traceback_later(60, file=sys.stderr)
import argparse, ctypes, functools, itertools, json, os, statistics, tempfile, time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.92")
import jax, jax.numpy as jnp
from examples.llama_decode import model, steps, hopper
from examples.llama_decode.plan import Cut, Ring, Kernels
ap = argparse.ArgumentParser(); ap.add_argument("--out", type=Path, required=True); ap.add_argument("--tiny", action="store_true"); ap.add_argument("--count", action="store_true"); ap.add_argument("--tune", action="store_true"); ap.add_argument("--lower", action="store_true"); ap.add_argument("--limit", type=float, default=200); o = ap.parse_args()
BEGAN = time.perf_counter()
def spent(): return time.perf_counter() - BEGAN
LAST, OWN = steps.RUNGS[-1], next(r for r in steps.RUNGS if r.name == "own kernels")
NOCHAIN = replace(LAST, name="not overlapped", way=replace(LAST.way, chain=False))
def own_head(shape, kernels, cut, weights, cache, tokens, position, **how):
    """As steps.kernel_step, and the head by hopper.linear too."""
    batch, layers = len(tokens), weights["layers"]
    one = jax.jit(functools.partial(steps.kernel_layer, kernels, **how))
    turn = model.angles(shape, position)
    residual = jnp.pad(weights["embedding"][tokens].astype(jnp.float32), ((0, -batch % 8), (0, 0)))
    gains = [w["norm1"] for w in layers[1:]] + [weights["norm"]]
    y = (residual * layers[0]["norm1"].astype(jnp.float32)).astype(jnp.bfloat16)
    stream = residual, y, hopper.first_squares(residual)
    pairs = []
    for w, gain, pair in zip(layers, gains, cache, strict=True):
        stream, pair = one(stream, w, gain, pair, turn, position[None]); pairs.append(pair)
    out = hopper.linear(stream[1], weights["head"], cut, stream[2], narrow=True, name="head", chain=kernels.chain, **how)
    return out[0, :batch], pairs
HEADS = {"head 128, ring 5": Cut(128, ring=Ring(5)), "head 128 deep 128, ring 3": Cut(128, depth=128, ring=Ring(3)), "head 256, ring 6": Cut(256, ring=Ring(6)), "head 192, ring 4": Cut(192, ring=Ring(4)), "head 64 deep 128, ring 6": Cut(64, depth=128, ring=Ring(6))}
def build(shape, rung, batch, tokens, cut=None):
    specs = jax.eval_shape(lambda: rung.arguments(shape, batch, tokens))
    if cut is None: return rung.jitted(shape).lower(*specs).compile()
    w = {**specs[0], "head": jax.eval_shape(lambda h: hopper.pack(h.T, cut), specs[0]["head"])}
    f = jax.jit(functools.partial(own_head, shape, rung.way, cut), donate_argnums=1, compiler_options={"xla_gpu_enable_command_buffer": ""} if rung.way.chain else {})
    return f.lower(w, *specs[1:]).compile()
def timed(p, args, n=None):
    w, cache, *rest = args
    logits, cache = p(w, cache, *rest); jax.block_until_ready((logits, cache))
    runs = []
    for _ in range(6):
        n = n or 20
        t = time.perf_counter()
        for _ in range(n): logits, cache = p(w, cache, *rest)
        jax.block_until_ready((logits, cache)); runs.append((time.perf_counter() - t) / n)
    return runs[1:], logits, cache
def stated(): 
    from roofline_helpers.device.machine import device_facts, now, software_versions
    return {"device": device_facts(), "software": software_versions(), "date": now(), "command": "decode.py"}
if o.lower:
    mesh = jax.sharding.AbstractMesh((), (), abstract_device=jax.sharding.AbstractDevice("NVIDIA H200", "cuda", 132))
    checks = [jax.export.DisabledSafetyCheck.custom_call("mosaic_gpu_v2")]
    shape = model.Llama(layers=2)
    with jax.sharding.use_abstract_mesh(mesh):
      for name, cut in HEADS.items():
        specs = jax.eval_shape(lambda: LAST.arguments(shape, 16, 2048))
        w = {**specs[0], "head": jax.eval_shape(lambda h: hopper.pack(h.T, cut), specs[0]["head"])}
        f = jax.jit(functools.partial(own_head, shape, LAST.way, cut), donate_argnums=1)
        print(name, jax.export.export(f, platforms=["cuda"], disabled_checks=checks)(w, *specs[1:]).mlir_module().count("custom_call @mosaic"))
      for hidden, tokens in ((28672, 2048), (43008, 8192)):
        s = replace(shape, hidden=hidden); specs = jax.eval_shape(lambda: LAST.arguments(s, 64, tokens))
        print(hidden, jax.export.export(LAST.jitted(s), platforms=["cuda"], disabled_checks=checks)(*specs).mlir_module().count("custom_call @mosaic"))
    raise SystemExit
if o.count:
    cuda = ctypes.CDLL("libcuda.so.1"); shape = model.Llama(layers=1, vocabulary=1024); print("begin", spent(), file=sys.stderr, flush=True)
    for batch in (16, 1):
        args = LAST.arguments(shape, batch, 2048); jax.block_until_ready(args); print("drawn", spent(), file=sys.stderr, flush=True); p = build(shape, NOCHAIN, batch, 2048)
        print("built", spent(), file=sys.stderr, flush=True)
        logits, cache = p(*args); jax.block_until_ready(logits); print("ran", spent(), file=sys.stderr, flush=True)
        cuda.cuProfilerStart(); logits, cache = p(args[0], cache, *args[2:]); jax.block_until_ready(logits); cuda.cuProfilerStop()
        del args, cache, logits
    os._exit(0)
record = {"rungs": [], "layers": []}
def save(): o.out.write_text(json.dumps({**stated(), **record}))
def way(**cuts):
    w = LAST.way; tiles = cuts.pop("tiles", None); 
    if tiles: w = replace(w, tiles=tiles)
    middle = {**w.middle, **{k: v for k, v in cuts.items()}}
    return replace(LAST, way=replace(w, middle=middle))
if o.tune:
    G = {"base": {}, "gate_up ring 4": dict(gate_up=Cut(224, ring=Ring(4))), "gate_up ring 5, 3 ahead": dict(gate_up=Cut(224, ring=Ring(5, ahead=3))), "gate_up ring 6": dict(gate_up=Cut(224, ring=Ring(6))), "gate_up ring 3": dict(gate_up=Cut(224, ring=Ring(3))), "gate_up 112, ring 5": dict(gate_up=Cut(112, ring=Ring(5))), "gate_up 112 deep 128, ring 4": dict(gate_up=Cut(112, depth=128, ring=Ring(4))),
      "gate_up 224 deep 128, ring 3": dict(gate_up=Cut(224, depth=128, ring=Ring(3))),
      "down ring 3": dict(down=Cut(128, 4, depth=128, ring=Ring(3))), "down ring 5": dict(down=Cut(128, 4, depth=128, ring=Ring(5))), "down 64, 2 splits": dict(down=Cut(64, 2, depth=128, ring=Ring(6))), "down 64, 4 splits": dict(down=Cut(64, 4, depth=128, ring=Ring(6))), "down 64, 4 splits, ring 3": dict(down=Cut(64, 4, depth=128, ring=Ring(3))),
      "qkv ring 4": dict(qkv=Cut(192, 4, ring=Ring(4))), "qkv ring 7": dict(qkv=Cut(192, 4, ring=Ring(7))), "qkv 96, 2 splits": dict(qkv=Cut(96, 2, ring=Ring(8))), "qkv 96, 4 splits": dict(qkv=Cut(96, 4, ring=Ring(5))), "qkv 48, 1 split": dict(qkv=Cut(48, 1, depth=128, ring=Ring(6))), "qkv 96 deep 128, 2 splits": dict(qkv=Cut(96, 2, depth=128, ring=Ring(5))),
      "o 128, 4 splits": dict(o=Cut(128, 4, depth=128, ring=Ring(4))), "o 64, 2 splits, ring 4": dict(o=Cut(64, 2, depth=128, ring=Ring(4))), "o 64, 4 splits": dict(o=Cut(64, 4, depth=128, ring=Ring(4))), "o 32, 1 split": dict(o=Cut(32, 1, depth=128, ring=Ring(8))),
      "tiles 2": dict(tiles=Ring(2)), "tiles 3": dict(tiles=Ring(3)), "tiles 4": dict(tiles=Ring(4)), "tiles 4, 2 ahead": dict(tiles=Ring(4, ahead=2))}
    S = model.Llama(layers=4, vocabulary=8192)
    def go(k, cuts):
        t = time.perf_counter(); return build(S, way(**cuts), 16, 2048), way(**cuts), time.perf_counter() - t
    drawn = model.random_weights(S); rest = steps.places(16, 2048); rows = []
    def trial(k, f):
        try: p, rung, c = f.result()
        except BaseException as e: print(k, type(e).__name__, str(e)[:150], flush=True); rows.append(dict(name=k, failed=str(e)[:200])); return
        args = (steps.packed(drawn, rung.way, 16), rung.cache(S, 16, 2048), *rest)
        runs, logits, cache = timed(p, args, 60); rows.append(dict(name=k, seconds=runs)); print(f"[{spent():.0f}] {k}: {1e6 * statistics.median(runs):.1f} µs (min {1e6 * min(runs):.1f})", flush=True)
    pool = ThreadPoolExecutor(6); made = {k: pool.submit(go, k, v) for k, v in G.items()}
    while spent() < o.limit * 0.6 and not all(f.done() for f in made.values()): time.sleep(1)
    for f in made.values(): f.cancel()
    pool.shutdown(wait=True)
    print(f"[{spent():.0f}] compiled", flush=True)
    for k, f in made.items():
        if not f.cancelled(): trial(k, f)
    trial("base", made["base"])
    best = {}
    med = {r["name"]: statistics.median(r["seconds"]) for r in rows if "seconds" in r}
    for k, t in med.items():
        part = k.split()[0]
        if k != "base" and t < med["base"] * 0.999 and t < best.get(part, (9,))[0]: best[part] = (t, k)
    print("best", best, flush=True)
    joined = {kk: v for t, k in best.values() for kk, v in G[k].items()}
    if joined:
        pool = ThreadPoolExecutor(1); trial("joined: " + "; ".join(k for _, k in best.values()), pool.submit(go, "joined", joined)); trial("base", made["base"])
    o.out.write_text(json.dumps({**stated(), "what": "seconds of a step of 4 layers, batch 16, 2048 tokens, vocabulary 8192", "rows": rows})); os._exit(0)
ap2 = [b for b in (16, 1)]
FITS = [(14336, 2048), (28672, 2048), (14336, 8192), (14336, 4096)]
jobs = {}
for b in ap2:
    for h, t in FITS:
        for layers in (4, 12):
            jobs[b, h, t, layers, LAST.name, ""] = (model.Llama(layers=layers, hidden=h, vocabulary=8192), LAST, None)
    for layers in (4, 12): jobs[b, 14336, 2048, layers, NOCHAIN.name, ""] = (model.Llama(layers=layers, vocabulary=8192), NOCHAIN, None)
    jobs[b, 14336, 2048, 4, LAST.name, "whole head"] = (model.Llama(layers=4), LAST, None)
    for n, c in HEADS.items(): jobs[b, 14336, 2048, 4, LAST.name, n] = (model.Llama(layers=4), LAST, c)
order = sorted(jobs, key=lambda k: (k[1:3] != FITS[0], k[3], k[5] not in ("", "whole head", "head 128, ring 5"), k[2]))
def go(k):
    t = time.perf_counter(); s, rung, cut = jobs[k]; p = build(s, rung, k[0], k[2], cut); return p, time.perf_counter() - t
pool = ThreadPoolExecutor(6); made = {k: pool.submit(go, k) for k in order}
while spent() < o.limit * 0.6 and not all(f.done() for f in made.values()): time.sleep(1)
for f in made.values(): f.cancel()
pool.shutdown(wait=True)
print(f"[{spent():.0f}] compiled {sum(f.done() and not f.cancelled() for f in made.values())} of {len(made)}", flush=True)
from roofline_helpers.device.trace import read_trace
for k in order:
    f = made[k]
    if f.cancelled() or f.exception(): print("not compiled", k, "" if f.cancelled() else repr(f.exception())[:300]); continue
    if spent() > o.limit: print("time up", k); break
    p, compiling = f.result(); s, rung, cut = jobs[k]
    try:
        args = LAST.arguments(s, k[0], k[2])
        if cut: args = ({**args[0], "head": jax.jit(lambda h: hopper.pack(h.T, cut))(args[0]["head"])}, *args[1:])
        runs, logits, cache = timed(p, args, 30)
        row = dict(batch=k[0], hidden=k[1], tokens=k[2], layers=k[3], rung=k[4], head=k[5], vocabulary=s.vocabulary, seconds=runs, compile=compiling)
        if k[5] in ("whole head", "head 128, ring 5") or (k[1:4] == (14336, 2048, 4)):
            with tempfile.TemporaryDirectory() as d:
                opts = jax.profiler.ProfileOptions(); opts.python_tracer_level = 0
                jax.profiler.start_trace(d, profiler_options=opts)
                for _ in range(4): logits, cache = p(args[0], cache, *args[2:])
                jax.block_until_ready(cache); jax.profiler.stop_trace()
                ev = sorted(read_trace(d).events, key=lambda e: e.start)
                row["events"] = [(e.op, e.label, e.start - ev[0].start, e.seconds) for e in ev]
        record["layers"].append(row)
        print(f"[{spent():.0f}] {k}: {1e6 * statistics.median(runs):.1f} µs, compiled in {compiling:.0f} s", flush=True)
        if k[5] == "whole head": base = logits.astype(jnp.float32); record.setdefault("base", {})[k[0]] = float(jnp.linalg.norm(base)); bases = globals().setdefault("BASES", {}); bases[k[0]] = base
        elif k[5] and k[0] in globals().get("BASES", {}): row["error"] = float(jnp.linalg.norm(logits.astype(jnp.float32) - BASES[k[0]]) / jnp.linalg.norm(BASES[k[0]])); print("   differs", row["error"])
        del logits, cache, args
    except Exception as ex: print(k, type(ex).__name__, str(ex)[:300], flush=True)
    save()
save(); os._exit(0)
