# ruff: noqa: B023, C408, UP031
# mypy: ignore-errors
"""torch.nn.functional.grouped_mm over the same cases. --out FILE [--limit S]"""

import argparse
import json
import statistics
import time
from pathlib import Path

import numpy as np
import torch

ap = argparse.ArgumentParser()
ap.add_argument("--out", type=Path, required=True)
ap.add_argument("--limit", type=float, default=60)
o = ap.parse_args()
B = time.perf_counter()


def spent():
    return time.perf_counter() - B


mm = getattr(torch.nn.functional, "grouped_mm", None) or torch._grouped_mm


def routed(experts, tokens, top, load):
    if load == "equal":
        return np.full(experts, tokens * top // experts, np.int32)
    rng = np.random.default_rng(0)
    score = -np.log(np.arange(1, experts + 1)) + rng.gumbel(size=(tokens, experts))
    return np.bincount(
        np.argpartition(-score, top - 1, axis=1)[:, :top].ravel(), minlength=experts
    ).astype(np.int32)


def call(mode, a, b, offs):
    if mode == "forward":
        return mm(a, b, offs=offs)
    if mode == "dx":
        return mm(a, b.transpose(1, 2), offs=offs)
    return mm(a.t(), b, offs=offs)


out = {
    "software": {
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
    },
    "device": torch.cuda.get_device_name(),
    "call": getattr(mm, "__qualname__", str(mm)),
    "cases": [],
}
print(out, flush=True)
MIX = {"8 of 14336, top 2": (8, 4096, 14336, 2), "128 of 1536, top 8": (128, 4096, 1536, 8)}
for name, (e, k, n, top) in MIX.items():
    for mode, tokens in [("forward", t) for t in (16, 128, 1024, 4096, 16384)] + [
        (m, t) for m in ("dx", "dw") for t in (1024, 16384)
    ]:
        rows = tokens * top
        copies = 4 if tokens <= 1024 and mode != "dw" else 1
        a = torch.randn(rows, n if mode == "dx" else k, device="cuda", dtype=torch.bfloat16)
        many = [
            torch.randn(
                (rows, n) if mode == "dw" else (e, k, n), device="cuda", dtype=torch.bfloat16
            )
            for _ in range(copies)
        ]
        for load in ("equal", "Zipf"):
            if spent() > o.limit:
                break
            sizes = routed(e, tokens, top, load)
            row = dict(mixture=name, mode=mode, tokens=tokens, load=load)
            try:
                offs = torch.tensor(np.cumsum(sizes), dtype=torch.int32, device="cuda")
                y = call(mode, a, many[0], offs)
                of = np.repeat(np.arange(e), sizes)
                if mode == "dw":
                    i = int(np.argmax(sizes))
                    m = torch.tensor(of == i, device="cuda")
                    want = (a[m].t() @ many[0][m]).float()
                    got = y[i].float()
                else:
                    r = np.linspace(0, rows - 1, 16).astype(int)
                    want = torch.stack(
                        [
                            a[j] @ (many[0][of[j]] if mode == "forward" else many[0][of[j]].t())
                            for j in r
                        ]
                    ).float()
                    got = y[torch.tensor(r, device="cuda")].float()
                row["error"] = float((got - want).norm() / want.norm())
                del y, got, want

                def run(c):
                    s, f = (
                        torch.cuda.Event(enable_timing=True),
                        torch.cuda.Event(enable_timing=True),
                    )
                    s.record()
                    for _ in range(c):
                        for b in many:
                            call(mode, a, b, offs)
                    f.record()
                    f.synchronize()
                    return s.elapsed_time(f) / 1e3 / c / copies

                run(2)
                c = max(2, min(30, int(0.02 / (run(1) * copies))))
                row["seconds"] = [run(c) for _ in range(5)]
                with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as p:
                    call(mode, a, many[0], offs)
                    torch.cuda.synchronize()
                row["kernels"] = {
                    x.key[:120]: [x.count, x.self_device_time_total / 1e6] for x in p.key_averages()
                }
            except Exception as ex:
                row["failed"] = f"{type(ex).__name__}: {ex}"[:300]
            out["cases"].append(row)
            o.out.write_text(json.dumps(out))
            print(
                f"[{spent():.0f}]",
                name,
                mode,
                tokens,
                load,
                row.get("failed")
                or "%.0f µs, error %.1e, %d kernels"
                % (1e6 * statistics.median(row["seconds"]), row["error"], len(row["kernels"])),
                flush=True,
            )
