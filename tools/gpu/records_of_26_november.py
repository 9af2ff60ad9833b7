"""Merge the one-GPU runs into records of the package."""
import json, statistics
from pathlib import Path
from roofline_helpers import work
from roofline_helpers.common import records
ROOT = Path("/work/wt/gpu/roofline_helpers/data")
R = Path("/work/gpu-results")
def load(p): return json.loads((R / p).read_text())
def passed(xs, calls=1):
    q = statistics.quantiles(xs, n=4) if len(xs) > 1 else [xs[0]] * 3
    f = lambda v: float(f"{v:.6g}")
    return [{"median": f(statistics.median(xs)), "low": f(min(xs)), "q1": f(q[0]), "q3": f(q[2]), "high": f(max(xs)), "repeats": len(xs), "calls": calls, "compile": 0.0, "drift": 0.0, "notes": []}]
def sample(name, group, source, dtype, xs, bytes, date, flops=0.0, matrix=0.0, state=None, notes=()):
    return {"name": name, "group": group, "source": source, "dtype": dtype, "flops": float(flops), "matrix_flops": float(matrix), "bytes": float(bytes), "passes": passed(xs), "xla_bytes": None, "counters": None, "state": state, "notes": list(notes), "error": None, "runs": [], "date": date, "network": None}
# attention, into the H200's own record
h200 = json.loads((ROOT / "measured/h200.json").read_text())
h200["samples"] = [s for s in h200["samples"] if s["group"] != "attention in a jit"]
a = load("one1/attention.json")
took = {(r["length"], r["causal"], r["source"], r["way"]): r["seconds"] for r in a["rows"]}
for (n, causal, source, way), xs in took.items():
    job = work.flash_attention(2, n, heads=16, head_dim=128, causal=causal)
    name = f"{'causal ' * causal}flash attention {2}×16×{n}×128 bf16, 24 layers in a jit" + (", with its gradient" if way == "both" else "")
    times = 7 / 2 if way == "both" else 1
    h200["samples"].append(sample(name, "attention in a jit", source, "bf16", xs, float(job.bytes) * (1 if way == "forward" else 3), a["date"], float(job.flops) * times, float(job.matrix_flops) * times))
note = f"samples dated {a['date']} (attention in a jit): seconds a layer of 24 in one program, on another H200 of this driver, JAX 0.11.2, XLA's CUDA graphs on; tools/gpu/attention_in_jit.py of this record's commit"
h200["notes"] = [n for n in h200["notes"] if "attention in a jit" not in n] + [note]
(ROOT / "measured/h200.json").write_text(records.dumps(h200))
# all else
out = {k: h200[k] for k in ("schema", "host", "flags", "complete")}
y, t, l, k, o = load("one2/yardstick.json"), load("one2/torch_small.json"), load("one2/low_bits.json"), load("one2/split_kv.json"), load("one1/operands.json")
out |= {"device": y["device"], "software": {**y["software"], **{x: t["software"][x] for x in ("torch", "triton")}}, "date": y["date"], "command": "python yardstick.py, torch_small.py, low_bits.py, split_kv.py, operands.py: /tools/gpu of this record's commit", "flags": {"XLA_FLAGS": "--xla_gpu_enable_command_buffer="}, "host": h200["host"]}
S = []
for record, source in ((y, "jax"), (t, "torch")):
    for r in record["rows"]:
        for how in ("cold", "warm"):
            if r[how] <= 0: continue
            kind, src = r["kind"], source
            if "Triton" in kind: kind, src = "copy, blocks of " + kind.split()[-1], "triton"
            S.append(sample(f"{kind} {r['rows']}×4096 {r['dtype']}, {how}", f"small kernels, {how}", src, r["dtype"], [r[how]], r["bytes"], record["date"]))
for r in l["rows"]:
    if "failed" in r or not r.get("seconds"): continue
    S.append(sample(f"{r['m']}×{r['n']}×{r['k']}, {r['way']}", "weights in few bits", "pallas" if "Pallas" in r["way"] else "jax", "bf16", r["seconds"], r["bytes"], l["date"], 2 * r["m"] * r["n"] * r["k"], 2 * r["m"] * r["n"] * r["k"], {"error": float(f"{r['error']:.3g}")}))
for r in k["rows"]:
    if "failed" in r or r["error"] != r["error"]: continue
    S.append(sample(f"decode attention 1×32×{r['tokens']}×128 bf16, 8 KV heads, {r['way']}", "split-KV", "pallas" if "Pallas" in r["way"] else "cudnn" if r["way"] == "cuDNN" else "jax", "bf16", r["seconds"], r["bytes"], k["date"], 4 * 32 * r["tokens"] * 128, 4 * 32 * r["tokens"] * 128, {"error": float(f"{r['error']:.3g}")}))
n = 8192
for r in o["rows"]:
    first, later = r["seconds"][10:50], r["seconds"][50:]
    late = later[len(later) // 2:]
    seen = [x for x in r["state"] if x[0] > r["state"][-1][0] / 2]
    early = [x for x in r["state"] if 0 <= x[0] < 0.08] or r["state"][:3]
    mean = lambda xs, i: round(statistics.mean(x[i] for x in xs), 1)
    for how, xs, st in (("tenth to 50th", first, early), ("after a second", late, seen)):
        S.append(sample(f"matmul 8192×8192×8192 bf16, {r['operands']}, {how}", "operands", "torch", "bf16", xs, 3 * 2 * n * n, o["date"], 2 * n**3, 2 * n**3, {"clock": mean(st, 1) * 1e6, "power": mean(st, 2), "temperature": mean(st, 3), "throttle": st[-1][4]}))
out["samples"] = S
out["notes"] = ["small kernels: the profiler's time of a kernel, median of ten; cold: 256 MB were read and written before each; warm: one after the other on the same arrays", "weights in few bits: eight matrices in turn, so that none is in the L2; split-KV: four layers' caches in turn; operands: torch.matmul, each product timed by CUDA events, after a second's rest", f"the operands were timed on {o['date']}"]
(ROOT / "timed").mkdir(exist_ok=True)
(ROOT / "timed/h200.json").write_text(records.dumps(out))
