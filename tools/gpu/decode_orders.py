"""Time and trace all 40 orders of the decode step, and our own kernels. --out FOLDER [--tiny]"""
import os, sys, time, json, gzip, gc, shutil, argparse, itertools, statistics, traceback
os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"] = "0.94"
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
import jax, jax.numpy as jnp
from examples.llama_decode import model, steps
from roofline_helpers.device.machine import device_facts, now, software_versions
from roofline_helpers.device.runner import compiled_runner
from roofline_helpers.device.trace import RUN
from roofline_helpers.xla.lower import Arguments
BEGAN = time.perf_counter()
def spent(): return time.perf_counter() - BEGAN
ap = argparse.ArgumentParser(); ap.add_argument("--out", type=Path, required=True); ap.add_argument("--limit", type=float, default=330)
ap.add_argument("--tiny", action="store_true"); ap.add_argument("--threads", type=int, default=14); o = ap.parse_args()
o.out.mkdir(parents=True, exist_ok=True)
gpu = jax.default_backend() == "gpu"
shape, batch, tokens = model.Llama(), 64, 2048
if o.tiny: shape, batch, tokens = model.Llama(2, 512, 1792, 16, 4, 128, 512), 16, 128
R = []
for scan, fused in ((False, True), (False, False), (True, True), (True, False)):
    for f32, by_head, donate in itertools.product((False, True), (True, False), (True, False)):
        R.append((model.Plain(scan, f32, by_head, fused, "einsum"), donate))
    for donate in (True, False):
        R.append((model.Plain(scan, False, False, fused, "cudnn" if gpu else "xla"), donate))
rungs = [steps.Rung(f"{i:02d}", "", way, donate) for i, (way, donate) in enumerate(R)]
own = list(steps.RUNGS[-3:]) if gpu else []
BARE = {"xla_gpu_enable_command_buffer": ""} if gpu else None
def build(rung):
    specs = jax.eval_shape(lambda: rung.arguments(shape, batch, tokens))
    low = jax.jit(rung.step(shape), donate_argnums=1 if rung.donate else ()).lower(*specs)
    graphed = None
    if gpu and not (isinstance(rung.way, steps.Kernels) and rung.way.chain): graphed = low.compile()
    return low.compile(compiler_options=BARE), graphed
pool = ThreadPoolExecutor(o.threads)
futures = {r.name: pool.submit(build, r) for r in [*own, *rungs]}
record = {"schema": "roofline_helpers.decode_orders/1", "what": "one decode step of Llama-3-8B (examples/llama_decode, model.Plain), batch 64, 2048 tokens, bf16",
          "device": device_facts(), "software": software_versions(), "date": now(), "command": "decode_orders.py", "rows": []}
for n, f in futures.items():
    try: f.result(timeout=max(1, o.limit * 0.6 - spent()))
    except Exception as e: print(n, "compile", type(e).__name__, str(e)[:200], flush=True)
print(f"[{spent():.0f}] compiled {sum(f.done() for f in futures.values())} of {len(futures)}", flush=True)
def clock(program, args, donate, runs=4, calls=5):
    r = compiled_runner(program, Arguments(args, {}), {}, {}, consume=donate)
    r.run(2)
    return r, [r.run(calls) for _ in range(runs)]
kept = {}
def weights(rung):
    plain = rung.way
    key = rung.name if isinstance(plain, steps.Kernels) else (plain.scan, plain.fused)
    if key not in kept:
        kept.clear(); gc.collect()
        raw = model.random_weights(shape)
        kept[key] = rung.prepare(raw, batch)
        del raw; gc.collect()
    return kept[key]
for rung in [*own, *rungs]:
    if spent() > o.limit - 6: print("time up at", rung.name, flush=True); break
    about = {"name": rung.name, "donate": rung.donate}
    about |= asdict(rung.way) if isinstance(rung.way, model.Plain) else {"kernels": rung.name}
    try:
        f = futures[rung.name]
        if not f.done(): raise TimeoutError("not compiled in time")
        bare, graphed = f.result()
        w = weights(rung)
        def args(): return (w, rung.cache(shape, batch, tokens), *steps.places(batch, tokens))
        if graphed is not None:
            a = args(); r, about["graphs"] = clock(graphed, a, rung.donate); del r, a; gc.collect()
        a = args(); r, about["seconds"] = clock(bare, a, rung.donate); del a
        folder = o.out / "t"
        opts = jax.profiler.ProfileOptions(); opts.python_tracer_level = 0; opts.enable_hlo_proto = False
        jax.profiler.start_trace(str(folder), profiler_options=opts)
        r.run(1); traced = []
        for n in range(3):
            with jax.profiler.StepTraceAnnotation(RUN, step_num=n): traced.append(r.run(1))
        jax.profiler.stop_trace()
        about["traced"] = traced
        file = next(folder.rglob("*.xplane.pb"))
        (o.out / f"order-{rung.name.replace(' ', '-')}.xplane.pb.gz").write_bytes(gzip.compress(file.read_bytes(), 6))
        shutil.rmtree(folder); del r
        (o.out / f"order-{rung.name.replace(' ', '-')}.hlo.txt.gz").write_bytes(gzip.compress(bare.as_text().encode(), 6))
    except Exception as e:
        traceback.print_exc(limit=-2); about["failed"] = f"{type(e).__name__}: {e}"[:300]
    gc.collect()
    record["rows"].append(about)
    (o.out / "decode-orders.json").write_text(json.dumps(record))
    m = [round(1e3 * statistics.median(about[k]), 3) for k in ("graphs", "seconds", "traced") if k in about]
    print(f"[{spent():.0f}]", rung.name, rung.donate, {k: v for k, v in about.items() if k in ("scan","float32","by_head","fused","attention")}, m, flush=True)
pool.shutdown(wait=False, cancel_futures=True)
os._exit(0)
