"""The chain's Triton kernel under carve-outs and cache modifiers. --out FILE"""
import argparse, ctypes, json, statistics, time
from collections import defaultdict
from pathlib import Path
import torch, triton, triton.language as tl
from examples.torch_chain import forward_kernel, _normal
ap = argparse.ArgumentParser(); ap.add_argument("--out", type=Path, required=True); ap.add_argument("--count", action="store_true"); o = ap.parse_args()
ROWS, N = 65536, 4096
@triton.jit
def cg_kernel(x, gamma, beta, mask, residual, y, n, eps, keep, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK); inside = at < n
    row = tl.program_id(0).to(tl.int64) * n
    v = tl.load(x + row + at, mask=inside, other=0.0, cache_modifier=".cg").to(tl.float32)
    kept = tl.load(mask + row + at, mask=inside, other=0.0, cache_modifier=".cg").to(tl.float32)
    r = tl.load(residual + row + at, mask=inside, other=0.0, cache_modifier=".cg").to(tl.float32)
    normal, _ = _normal(v, inside, n, eps)
    v = normal * tl.load(gamma + at, mask=inside, other=0.0).to(tl.float32)
    v = v + tl.load(beta + at, mask=inside, other=0.0).to(tl.float32)
    v = v * tl.sigmoid(1.5957691216057308 * (v + 0.044715 * v * v * v))
    tl.store(y + row + at, (r + v * kept * keep).to(y.dtype.element_ty), mask=inside)
cuda = ctypes.CDLL("libcuda.so.1")
x, r = (torch.randn(ROWS, N, device="cuda", dtype=torch.bfloat16) for _ in range(2))
g, b = (torch.randn(N, device="cuda", dtype=torch.bfloat16) for _ in range(2))
m = (torch.rand(ROWS, N, device="cuda") > 0.1).to(torch.bfloat16); y = torch.empty_like(x)
rows = []
for name, kernel in (("as it is", forward_kernel), (".cg", cg_kernel)):
    for warps in (4, 8, 16):
        def launch(): return kernel[(ROWS,)](x, g, b, m, r, y, N, 1e-5, 1 / 0.9, BLOCK=N, num_warps=warps)
        made = launch(); torch.cuda.synchronize()
        for shared in (-1, 0, 25, 50, 75, 100):
            if (warps != 8 or kernel is cg_kernel) and shared not in (-1, 100): continue
            assert not cuda.cuFuncSetAttribute(ctypes.c_void_p(made.function), 9, shared)
            if o.count:
                if warps != 8: continue
                torch.cuda.synchronize(); cuda.cuProfilerStart(); launch(); torch.cuda.synchronize(); cuda.cuProfilerStop(); rows.append(f"{name}, carve-out {shared}"); continue
            turns = []
            for _ in range(2):
                with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as p:
                    for _ in range(30): launch()
                    torch.cuda.synchronize()
                t = [e.device_time * 1e-6 for e in p.events() if e.device_type == torch.autograd.DeviceType.CUDA]
                turns.append(statistics.median(t[5:]))
            rows.append(dict(name=name, warps=warps, carveout=shared, seconds=turns, registers=made.n_regs, shared=made.metadata.shared))
            print(rows[-1], flush=True)
        assert not cuda.cuFuncSetAttribute(ctypes.c_void_p(made.function), 9, -1)
o.out.write_text(json.dumps(rows if o.count else {"device": torch.cuda.get_device_name(), "software": {"torch": torch.__version__, "triton": triton.__version__}, "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "command": "chain_triton.py", "rows": rows}))
