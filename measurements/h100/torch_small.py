"""Small kernels of PyTorch, and Triton's copy, by the profiler, warm and cold. --out FILE"""
import argparse, json, statistics, time
from collections import defaultdict
from pathlib import Path
import torch, triton, triton.language as tl
from torch.nn import functional as F
ap = argparse.ArgumentParser(); ap.add_argument("--out", type=Path, required=True); ap.add_argument("--limit", type=float, default=60); o = ap.parse_args()
BEGAN = time.perf_counter(); C = 4096
@triton.jit
def copy_kernel(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n), mask=i < n)
def triton_copy(block, warps):
    def f(x):
        y = torch.empty_like(x); n = x.numel()
        copy_kernel[(triton.cdiv(n, block),)](x, y, n, BLOCK=block, num_warps=warps); return y
    return f
KINDS = {"copy": (torch.clone, 1, 1), "add one": (lambda x: x + 1, 1, 1), "add": (torch.add, 2, 1), "gelu": (F.gelu, 1, 1), "row sums": (lambda x: x.sum(-1), 1, 0), "column sums": (lambda x: x.sum(0), 1, 0), "RMSNorm": (lambda x: F.rms_norm(x, (C,), eps=1e-5), 1, 1), "softmax": (lambda x: torch.softmax(x, -1), 1, 1), "copy, Triton 512": (triton_copy(512, 4), 1, 1), "copy, Triton 1024": (triton_copy(1024, 4), 1, 1), "copy, Triton 2048": (triton_copy(2048, 4), 1, 1), "copy, Triton 4096": (triton_copy(4096, 8), 1, 1), "copy, Triton 8192": (triton_copy(8192, 8), 1, 1)}
flush_x = torch.ones(64 * 2**20, device="cuda")
record = {"schema": "roofline_helpers.small_kernels/1", "what": "seconds of PyTorch's and Triton's kernels by the profiler, [rows, 4096]; cold: 256 MB were read and written before each", "device": {"name": torch.cuda.get_device_name()}, "software": {"torch": torch.__version__, "triton": triton.__version__}, "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "command": "torch_small.py", "rows": []}
for kind, (f, reads, writes) in KINDS.items():
    for dt in (torch.bfloat16, torch.float32, torch.int8):
        if dt == torch.int8 and "copy" not in kind: continue
        sizes = (0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000, 3000)
        row_of = {}
        for mb in sizes:
            if time.perf_counter() - BEGAN > o.limit: break
            size = torch.tensor([], dtype=dt).element_size()
            rows = max(1, round(mb * 1e6 / (C * size * (reads + writes))))
            xs = [(torch.randn(rows, C, device="cuda") * 3).to(dt) for _ in range(reads)]
            row = dict(kind=kind, dtype={torch.bfloat16: "bf16", torch.float32: "fp32", torch.int8: "int8"}[dt], rows=rows, bytes=rows * C * size * (reads + writes) + (size * (rows if kind == "row sums" else C) if not writes else 0))
            f(*xs); torch.cuda.synchronize()
            for cold in (True, False):
                with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as p:
                    for _ in range(10):
                        if cold: torch.mul(flush_x, 1.0001, out=flush_x)
                        f(*xs)
                    torch.cuda.synchronize()
                per = defaultdict(list)
                for e in p.events():
                    if e.device_type == torch.autograd.DeviceType.CUDA: per[e.name].append(e.device_time * 1e-6)
                if cold: # the flush is the longest name that ran 10 times beside the others
                    gone = [k for k in per if "MulFunctor" in k or "BinaryFunctor<float, float, float, at::native::binary_internal::MulFunctor" in k or "mul" in k.lower()]
                    for k in gone: per.pop(k)
                row["cold" if cold else "warm"] = sum(statistics.median(v[2:] or v) * round(len(v) / 10) for v in per.values())
                row["names"] = [k[:60] for k in per]
            record["rows"].append(row)
        o.out.write_text(json.dumps(record))
        print(kind, dt, [("%.1f" % (r["bytes"] / 1e6), "%.2f" % (1e6 * r["cold"]), "%.2f" % (1e6 * r["warm"])) for r in record["rows"] if r["kind"] == kind][-10:], flush=True)
