"""Merge one H100's runs into records of the package and of the examples."""
import csv, io, json, statistics
from pathlib import Path
from roofline_helpers import work
from roofline import storage
ROOT, R = Path(__file__).resolve().parents[2], Path("/work/gpu-results")
def load(p): return json.loads((R / p).read_text())
f6 = lambda v: float(f"{v:.6g}")
def sample(name, group, source, dtype, xs, bytes, date, flops=0.0, counters=None, notes=()):
    q = statistics.quantiles(xs, n=4) if len(xs) > 1 else [xs[0]] * 3
    passes = [{"median": f6(statistics.median(xs)), "low": f6(min(xs)), "q1": f6(q[0]), "q3": f6(q[2]), "high": f6(max(xs)), "repeats": len(xs), "calls": 1, "compile": 0.0, "drift": 0.0, "notes": []}]
    return {"name": name, "group": group, "source": source, "dtype": dtype, "flops": float(flops), "matrix_flops": 0.0, "bytes": float(bytes), "passes": passes, "xla_bytes": None, "counters": counters, "state": None, "notes": list(notes), "error": None, "runs": [], "date": date, "network": None}
def counted(path, names=None):
    lines = (R / path).read_text().splitlines(); start = next(i for i, l in enumerate(lines) if l.startswith('"ID"')); by = {}
    for r in csv.DictReader(io.StringIO("\n".join(lines[start:]))): by.setdefault(int(r["ID"]), {"kernel": r["Kernel Name"]})[r["Metric Name"]] = r["Metric Value"].replace(",", "")
    out = [by[i] for i in sorted(by)]
    return list(zip(names, out)) if names else [(o["kernel"], o) for o in out]
def counters(v):
    n = lambda k: float(v[k])
    return {"cycles": n("sm__cycles_elapsed.max"), "dram_read": n("dram__bytes_read.sum"), "dram_written": n("dram__bytes_write.sum"), "dram": f6(n("dram__throughput.avg.pct_of_peak_sustained_elapsed") / 100), "warps": f6(n("sm__warps_active.avg.pct_of_peak_sustained_active") / 100), "issued": f6(n("smsp__issue_active.avg.pct_of_peak_sustained_active") / 100), "registers": n("launch__registers_per_thread"), "threads": n("launch__block_size"), "blocks": n("launch__grid_size"), "shared": n("launch__shared_mem_config_size"), **({"l1": f6(n("l1tex__t_sector_hit_rate.pct") / 100)} if "l1tex__t_sector_hit_rate.pct" in v else {})}
y, t = load("h100small/yardstick.json"), load("h100small/torch_small.json")
S = []
for record, source in ((y, "jax"), (t, "torch")):
    for r in record["rows"]:
        for how in ("cold", "warm"):
            if r[how] <= 0: continue
            kind, src = r["kind"], source
            if "Triton" in kind: kind, src = "copy, blocks of " + kind.split()[-1], "triton"
            S.append(sample(f"{kind} {r['rows']}×4096 {r['dtype']}, {how}", f"small kernels, {how}", src, r["dtype"], [r[how]], r["bytes"], record["date"]))
c = load("chain2/copies.json")
for r in c["rows"]:
    dt = {"bfloat16": "bf16", "float32": "fp32"}.get(r["dtype"], r["dtype"])
    S.append(sample(f"copy 512 MiB {dt}, {r['warps']} warps, {r['elements']} elements a thread", "copies by block", "triton", dt, [r["seconds"]], 2**30, c["date"]))
job = work.fuse(*work.fusion_chain(65536, 4096, "bf16", mask="bf16"))
for path, launch in (("chain2/chain.json", ""), ("chain2/chain_l1.json", ", L1 left to the driver")):
    d = load(path)
    for r in d["rows"]:
        if "seconds" in r: S.append(sample(f"chain 65536×4096 bf16, {r['name']}{launch}", "chain and L1", "mosaic" if "Mosaic" in r["name"] else "jax" if r["name"] == "XLA" else "pallas", "bf16", r["seconds"], job.bytes, d["date"], job.flops))
d = load("chain2/chain_triton.json")
for r in d["rows"]:
    S.append(sample(f"chain 65536×4096 bf16, Triton{', .cg' if r['name'] == '.cg' else ''}, {r['warps']} warps, carve-out {r['carveout']}", "chain and L1", "triton", "bf16", r["seconds"], job.bytes, d["date"], job.flops))
for name, v in counted("unroll/n/chain.csv", ["package", "", "", "XLA", "16 warps, .cg", "Mosaic, 2 a multiprocessor, 2 stages, 1 out"]):
    if name: S.append(sample(f"chain 65536×4096 bf16, {name}, under ncu", "counted", "mosaic" if "Mosaic" in name else "jax" if name == "XLA" else "pallas", "bf16", [float(v["gpu__time_duration.sum"]) * 1e-9], job.bytes, d["date"], job.flops, counters(v)))
for name, v in counted("h200chain/n/triton.csv", load("h200chain/n/triton_names.json")):
    S.append(sample(f"chain 65536×4096 bf16, Triton, {name}, under ncu".replace("as it is, ", "").replace("Triton, .cg", "Triton, .cg, 8 warps"), "counted", "triton", "bf16", [float(v["gpu__time_duration.sum"]) * 1e-9], job.bytes, d["date"], job.flops, counters(v)))
TYPES = {"int8": ("int8", 1), "bfloat16": ("bf16", 2), "float32": ("fp32", 4)}
for name, v in counted("tune/n/loops.csv", load("tune/n/loops_names.json")):
    kind, dt = name.rsplit(" ", 1)
    arrays = {"add": 3, "row sums": 1}.get(kind, 2)
    S.append(sample(f"{kind} 256 MiB {TYPES[dt][0]}, under ncu", "counted", "jax", TYPES[dt][0], [float(v["gpu__time_duration.sum"]) * 1e-9], arrays * 2**28, d["date"], counters=counters(v)))
q = load("small_chain/small_chain.json")
for r in q["rows"]:
    parts = work.fusion_chain(r["rows"], 4096, "bf16", mask="bf16")
    apart = r["way"] == "four kernels"
    moved = float(sum(p.bytes for p in parts)) if apart else work.fuse(*parts).bytes
    S.append(sample(f"chain {r['rows']}×4096 bf16, {r['way']}, {r['graphs']}", "chain in a program", "jax", "bf16", r["seconds"], moved, q["date"], job.flops * r["rows"] / 65536))
h100 = json.loads((ROOT / "roofline_helpers/data/measured/h100.json").read_text())
out = {"schema": h100["schema"], "host": {**h100["host"], "system": "Linux 6.18.44", "cores": 16}, "flags": {"XLA_FLAGS": "--xla_gpu_enable_command_buffer="}, "complete": True, "device": y["device"], "software": {**y["software"], **{x: t["software"][x] for x in ("torch", "triton")}}, "date": y["date"],
  "command": "yardstick.py, torch_small.py, copies.py, chain.py, chain_triton.py, loops.py and small_chain.py of measurements/h100, in the repository's history of this date", "samples": S,
  "notes": ["chain in a program: seconds a chain of 50 in one jit, each chain's x is the result of the one before; with optimization barriers between four kernels; XLA's CUDA graphs on (graphs) or off","five H100 SXM of one driver (580.159.04, 700 W), one lease each: small kernels; copies by block, chain and L1; counted (two leases); chain in a program",
    "small kernels: the profiler's time of a kernel, median of ten; cold: 256 MB were read and written before each; warm: one after the other on the same arrays",
    "chain and L1: the profiler's time, medians of two rows of 30 calls. L1 left to the driver: cuFuncSetCacheConfig, by which XLA asks for shared memory before it launches a kernel that has some, was made to do nothing (shim.c)",
    ".cg: JAX 0.11.2 takes this modifier in pallas.triton.load, but looks up \"cg\"; the script added the missing key",
    "counted: Nsight Compute; `dram`, `warps` and `issued` are shares of the peak, `shared` the bytes of an SM's L1 that are shared memory",
    "compiler options xla_gpu_experimental_max_unroll_factor 8 and 16 and xla_gpu_native_emitter_tune_unroll_factor_for_loops are taken by JAX 0.11.2 and change neither grid nor time (unroll.py, 2026-11-26)"]}
storage.save(ROOT / "roofline_helpers/data/timed/h100.json", out)
# the decode step's layers
d = load("decode2/decode.json"); tune = load("tune/tune.json"); rows = []
for r in d["layers"]:
    rows.append({**{k: r[k] for k in ("batch", "hidden", "tokens", "layers", "vocabulary", "rung", "head")}, "seconds": [f6(x) for x in r["seconds"]]})
kernels = {}
for r in d["layers"]:
    if r["rung"] == "not overlapped" and "events" in r:
        by = {}
        for op, label, start, seconds in r["events"]:
            if "mosaic" in label: by.setdefault(label.replace("_mosaic_gpu_kernel", ""), []).append(seconds)
        kernels[str(r["batch"])] = {k: f6(statistics.median(v)) for k, v in by.items()}
seen = []
for name, v in counted("decodencu/decode.csv"):
    if "mosaic" in name: seen.append({"kernel": name.replace("_mosaic_gpu_kernel", ""), "seconds": float(v["gpu__time_duration.sum"]) * 1e-9, **counters(v)})
first = next(i for i, s in enumerate(seen) if s["kernel"] == "merge") - 2
record = {"what": "one decode step of Llama-3-8B with fewer layers, other widths and contexts: seconds a step. Two numbers of layers give a layer's time", "device": d["device"], "software": d["software"], "date": d["date"], "command": "decode.py, decode.py --tune and decode.py --count (under ncu) of measurements/h100, in the repository's history of this date", "rows": rows, "kernels": {"what": "seconds of each kernel by the profiler, not overlapped, 4 layers", **kernels}, "counted": {"16": seen[:first], "1": seen[first:]}, "tuned": [{"name": r["name"], "seconds": [f6(x) for x in r["seconds"]]} for r in tune["rows"] if "seconds" in r]}
(ROOT / "examples/llama_decode/h100-layers.json").write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
x = load("x2/xflags.json")
for r in x["rows"]: r["seconds"] = [f6(s) for s in r["seconds"]]
x["what"] = "a training step of examples/train_step over two H100s under XLA_FLAGS: seconds a step, five runs of three"; x["command"] = "xflags.py of measurements/h100, in the repository's history of this date"
(ROOT / "examples/train_step/h100-flags.json").write_text(json.dumps(x, indent=1, ensure_ascii=False) + "\n")
