"""Triton copies by bytes a thread asks for, and how many multiprocessors' warps are busy. --out FILE"""
import argparse, json, statistics, time
from pathlib import Path
import torch, triton, triton.language as tl
ap = argparse.ArgumentParser(); ap.add_argument("--out", type=Path, required=True); o = ap.parse_args()
@triton.jit
def copy_kernel(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n), mask=i < n)
rows = []
for dt in (torch.int8, torch.bfloat16, torch.float32):
    size = torch.tensor([], dtype=dt).element_size(); n = 2**29 // size
    x = (torch.randn(n, device="cuda") * 3).to(dt); y = torch.empty_like(x)
    for warps in (1, 4, 8):
        for each in (1, 2, 4, 8, 16, 32):
            block = 32 * warps * each
            def f(): return copy_kernel[(triton.cdiv(n, block),)](x, y, n, BLOCK=block, num_warps=warps)
            f(); torch.cuda.synchronize()
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as p:
                for _ in range(8): f()
                torch.cuda.synchronize()
            s = statistics.median([e.device_time * 1e-6 for e in p.events() if e.device_type == torch.autograd.DeviceType.CUDA][2:])
            rows.append(dict(dtype=str(dt)[6:], warps=warps, elements=each, bytes_a_thread=each * size, seconds=s, bandwidth=2 * n * size / s, per_second=n / s))
    for each in (1, 2, 4, 8, 16): print(dt, each * size, "B a thread:", *("%d warps %.2f TB/s %.3g/s" % (r["warps"], r["bandwidth"] / 1e12, r["per_second"]) for r in rows if r["dtype"] == str(dt)[6:] and r["elements"] == each), flush=True)
o.out.write_text(json.dumps({"device": torch.cuda.get_device_name(), "software": {"torch": torch.__version__, "triton": triton.__version__}, "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "command": "copies.py", "rows": rows}))
