"""A matmul of 8192³ in bf16 by what its operands hold, short and sustained, with clock and power. --out FILE"""
import argparse, json, threading, time
from pathlib import Path
import pynvml, torch
ap = argparse.ArgumentParser(); ap.add_argument("--out", type=Path, required=True); ap.add_argument("--seconds", type=float, default=3.0); ap.add_argument("--side", type=int, default=8192); o = ap.parse_args()
pynvml.nvmlInit(); h = pynvml.nvmlDeviceGetHandleByIndex(0)
n = o.side
def rand(): return torch.randn(n, n, device="cuda")
FILL = {
 "normal": lambda: rand().bfloat16(),
 "uniform 0 to 1": lambda: torch.rand(n, n, device="cuda").bfloat16(),
 "ones": lambda: torch.ones(n, n, device="cuda", dtype=torch.bfloat16),
 "zeros": lambda: torch.zeros(n, n, device="cuda", dtype=torch.bfloat16),
 "integers −4 to 4": lambda: torch.randint(-4, 5, (n, n), device="cuda").bfloat16(),
 "half zeros": lambda: (rand() * (torch.rand(n, n, device="cuda") < .5)).bfloat16(),
 "nine tenths zeros": lambda: (rand() * (torch.rand(n, n, device="cuda") < .1)).bfloat16(),
 "sorted rows": lambda: rand().sort(1).values.bfloat16(),
 "normal again": lambda: rand().bfloat16()}
state, stop = [], threading.Event()
def watch():
    while not stop.is_set():
        t = time.perf_counter()
        try: state.append((t, pynvml.nvmlDeviceGetClockInfo(h, pynvml.NVML_CLOCK_SM), pynvml.nvmlDeviceGetPowerUsage(h) / 1e3, pynvml.nvmlDeviceGetTemperature(h, 0), pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(h)))
        except Exception: pass
        time.sleep(0.015)
threading.Thread(target=watch, daemon=True).start()
def props(): return {"name": torch.cuda.get_device_name(), "power_limit": pynvml.nvmlDeviceGetEnforcedPowerLimit(h) / 1e3, "driver": pynvml.nvmlSystemGetDriverVersion()}
record = {"schema": "roofline_helpers.operands/1", "what": f"torch.matmul of {n}³ in bf16: seconds of each product by CUDA events; clock in MHz, power in W, by NVML", "device": props(), "software": {"torch": torch.__version__, "cuda": torch.version.cuda}, "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "command": f"operands.py --seconds {o.seconds}", "rows": []}
for name, fill in FILL.items():
    a, b = fill(), fill(); out = torch.empty(n, n, device="cuda", dtype=torch.bfloat16)
    torch.matmul(a, b, out=out); torch.cuda.synchronize(); time.sleep(1.0)
    count = max(20, int(o.seconds / (2 * n**3 / 750e12)))
    events = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
    began = time.perf_counter(); events[0].record()
    for e in events[1:]: torch.matmul(a, b, out=out); e.record()
    torch.cuda.synchronize(); ended = time.perf_counter()
    each = [x.elapsed_time(y) * 1e-3 for x, y in zip(events, events[1:])]
    seen = [(round(t - began, 3), *more) for t, *more in state if began - 0.1 <= t <= ended + 0.1]
    record["rows"].append({"operands": name, "seconds": [round(x, 7) for x in each[:50]] + [round(sum(each[i:i+25]) / len(each[i:i+25]), 7) for i in range(50, len(each), 25)], "first": 50, "then_means_of": 25, "state": seen[:: max(1, len(seen) // 120)]})
    f = 2 * n**3
    late = each[len(each) // 2:]
    s = [x for x in seen if x[0] > o.seconds / 2]
    print(name, "first %.0f, tenth to 50th %.0f, later %.0f TFLOP/s; clock %.0f MHz, %.0f W" % (f / each[0] / 1e12, f / (sum(each[10:50]) / 40) / 1e12, f / (sum(late) / len(late)) / 1e12, sum(x[1] for x in s) / max(1, len(s)), sum(x[2] for x in s) / max(1, len(s))), flush=True)
    o.out.write_text(json.dumps(record))
