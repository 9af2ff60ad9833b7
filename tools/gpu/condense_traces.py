"""Explain traces that were taken elsewhere, with the clock's times beside them. orders|train"""
import gzip, json, statistics, sys, tempfile, time
from dataclasses import replace
from pathlib import Path
import msgspec
from roofline_helpers.device.explain import Task
from roofline_helpers.device.ladder import Ladder, Step
from roofline_helpers.device.program import Program
from roofline_helpers.device.rows import grouped
from roofline_helpers.device.trace import read_trace
from roofline_helpers.xla.lower import Arguments

def explained(xplane, hlo, about, software, date, command, name, arguments=()):
    with tempfile.TemporaryDirectory() as d:
        f = Path(d) / "t.xplane.pb"
        f.write_bytes(gzip.open(xplane).read())
        trace = read_trace(f)
    program = Program(gzip.open(hlo, "rt").read(), trace.platform)
    # one call was awaited before the next: a run is from its first kernel to its last one, without the host's way there
    runs = []
    for run in trace.runs:
        inside = [e for events in trace.devices.values() for e in events if run.start <= e.start and e.end <= run.end + 1e-3]
        if inside: runs.append(replace(run, start=min(e.start for e in inside), end=max(e.end for e in inside)))
    trace = replace(trace, runs=runs, data=b"")
    plain = tuple(about["seconds"])
    why = Task(None, Arguments((), {}), ())._traced(
        trace, {program.module.name: program}, "h200", statistics.median(plain), name=name, arguments=arguments,
        device="NVIDIA H200", origin="measured", runs=plain, traced=tuple(r.seconds for r in runs), graphs=tuple(about.get("graphs", ())),
        queue=1, compiling=about.get("compiling", 0.0), notes=(), software=software)
    return replace(why, rows=grouped(why.rows), date=date, findings=tuple(replace(f, kernels=f.kernels[:8]) for f in why.findings))

def write(ladder, path):
    Path(path).write_bytes(msgspec.json.encode(ladder))

def orders():
    at = Path("/work/gpu-results/orders"); record = json.loads((at / "decode-orders.json").read_text()); made = []
    for row in record["rows"]:
        own = row.get("kernels")
        keys = ("scan", "float32", "by_head", "fused", "attention")
        setting = {"batch": 64, "context": 2048, "donate": row["donate"], **({} if own else {k: row[k] for k in keys})}
        slug = row["name"].replace(" ", "-")
        rung = own or ", ".join(filter(None, ["a scan" if row["scan"] else "unrolled", "float32" * row["float32"], "by head" * row["by_head"], "joined" * row["fused"], "cuDNN" * (row["attention"] == "cudnn"), "donated" * row["donate"]]))
        try: why = explained(at / f"order-{slug}.xplane.pb.gz", at / f"order-{slug}.hlo.txt.gz", row, record["software"], record["date"], "", rung)
        except Exception as e: print(rung, type(e).__name__, e); made.append(Step(rung, "", setting, failed=str(e)[:200])); continue
        made.append(Step(rung, "", setting, why)); print(rung, [(f.cause, round(1e3 * f.seconds, 2)) for f in why.findings[:2]], flush=True)
    torch = json.loads((at / "torch_step.json").read_text())["batch"]["64"]["steps"][0]
    made.append(Step("PyTorch", torch["setting"], {"batch": 64, "context": 2048, "attention": torch["attention"], "seconds": statistics.median(torch["seconds"])}, failed="timed, not explained"))
    write(Ladder("decode-orders", "python -m tools.gpu.decode_orders", tuple(made)), "/work/gpu-results/made/decode-orders.json")

def train():
    made = []
    for folder in ("four1", "ladder2"):
        at = Path("/work/gpu-results") / folder; record = json.loads((at / "ladder.json").read_text())
        for row in record["rungs"]:
            setting = {"batch": 16, "tokens": 2048, "layers": 8, "devices": 4}
            if row["after"]: setting["after"] = row["after"]
            if "failed" in row: made.append(Step(row["rung"], row["change"], setting, failed=row["failed"])); continue
            setting |= {"loss": row["losses"][0], "fourth loss": row["losses"][3], "memory": row["memory"]["argument"] + row["memory"]["temp"]}
            slug = row["rung"].replace(" ", "-").replace(",", "")
            t = time.time()
            why = explained(at / f"{slug}.xplane.pb.gz", at / f"{slug}.hlo.txt.gz", row, record["software"], record["date"], "", row["rung"])
            made.append(Step(row["rung"], row["change"], setting, why)); print(row["rung"], round(time.time() - t), [(f.cause, round(1e3 * f.seconds, 2)) for f in why.findings[:3]], flush=True)
            write(Ladder("train-step", "python -m tools.gpu.train_ladder", tuple(made)), "/work/gpu-results/made/train-step.json")
    record = json.loads(Path("/work/gpu-results/four1/torch.json").read_text())
    for row in record["settings"]:
        if "failed" in row: continue
        made.append(Step(f"PyTorch, {row['name']}", "FSDP2, each layer under torch.compile", {"batch": 16, "tokens": 2048, "layers": 8, "devices": 4, "seconds": statistics.median(row["seconds"]), "loss": row["losses"][0], "memory": row["memory"]}, failed="timed, not explained"))
    write(Ladder("train-step", "python -m tools.gpu.train_ladder", tuple(made)), "/work/gpu-results/made/train-step.json")
{"orders": orders, "train": train}[sys.argv[1]]()
