"""The training step on these GPUs under XLA_FLAGS of the environment. --name N --out FILE --rungs a,b"""
import argparse, hashlib, json, os, re, statistics, sys, time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
ap = argparse.ArgumentParser(); ap.add_argument("--out", type=Path, required=True); ap.add_argument("--name", required=True); ap.add_argument("--rungs", required=True); ap.add_argument("--layers", type=int, default=8); ap.add_argument("--tiny", action="store_true"); ap.add_argument("--limit", type=float, default=110); o = ap.parse_args()
os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"] = "0.92"
import jax
from examples.train_step import model, rungs
from roofline_helpers.device.machine import device_facts, now, software_versions
B = time.perf_counter(); count = len(jax.devices())
shape, tokens = (rungs.Llama(2, 512, 1024, 4, 2, 128, 512), (2 * count, 128)) if o.tiny else (replace(rungs.SHAPE, layers=o.layers), (4 * count, 2048))
ALL = {r.name: r for r in (*rungs.RUNGS, *rungs.ASIDE)}
ALL["scan, all kept"] = rungs.Rung("scan, all kept", "", replace(rungs.ALL, scan=True)); ALL["scan, gathered, chunked"] = rungs.Rung("scan, gathered, chunked", "", replace(rungs.CHUNKED, scan=True))
U = {"xla_gpu_enable_command_buffer": ""}
def go(name):
    t = time.perf_counter(); way = ALL[name].way
    way = replace(way, attention="einsum", flags={}) if jax.default_backend() != "gpu" else replace(way, flags={**way.flags, **U})
    on = model.mesh(way); p = model.compiled(shape, way, on, tokens); return p, on, way, time.perf_counter() - t
names = o.rungs.split(";"); pool = ThreadPoolExecutor(6); fs = {n: pool.submit(go, n) for n in names}
for n in names:
    row = dict(flags=os.environ.get("XLA_FLAGS", ""), name=o.name, rung=n, layers=shape.layers, tokens=tokens, devices=count)
    try:
        p, on, way, row["compiling"] = fs[n].result(timeout=max(5, o.limit - (time.perf_counter() - B)))
        text = re.sub(r"metadata=\{[^}]*\}|stack_frame_id=\d+", "", p.as_text()); row["program"] = hashlib.sha256(re.sub(r"backend_config=.*", "", text).encode()).hexdigest()[:12]; row["collectives"] = {k: len(re.findall(rf"= .*\b{k}\(", text)) for k in ("all-gather-start", "reduce-scatter", "all-reduce-start", "async-start", "while")}
        state = model.state(shape, way, on); ids = model.batch(shape, *tokens, on); losses = []
        for _ in range(4): state, loss = p(state, ids); losses.append(float(loss))
        runs = []
        for _ in range(5):
            t = time.perf_counter()
            for _ in range(3): state, loss = p(state, ids)
            jax.block_until_ready(state); runs.append((time.perf_counter() - t) / 3)
        m = p.memory_analysis(); row |= dict(seconds=runs, losses=losses, memory=m.argument_size_in_bytes + m.temp_size_in_bytes)
        print(f"[{time.perf_counter() - B:.0f}] {o.name} | {n}: {1e3 * statistics.median(runs):.2f} ms, {row['memory'] / 1e9:.1f} GB, {row['program']} {row['collectives']} losses {losses[0]:.5f} {losses[3]:.5f} compiled {row['compiling']:.0f} s", flush=True); del state
    except BaseException as e: row["failed"] = f"{type(e).__name__}: {e}"[:400]; print(o.name, n, row["failed"][:250], flush=True)
    old = json.loads(o.out.read_text()) if o.out.exists() else {"device": device_facts(), "count": count, "software": software_versions(), "date": now(), "command": "xflags.py", "rows": []}
    old["rows"].append(row); o.out.write_text(json.dumps(old))
os._exit(0)
