# mypy: ignore-errors
"""Time grouped matmuls of a mixture of experts: XLA's, JAX's own kernels, tokamax's.

python -m measurements.grouped --out FILE. Needs tokamax 0.0.12 and jax-triton 0.4.1 beside JAX.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import functools
import importlib.metadata
import json
import os
import re
import statistics
import sys
import tempfile
import time
import types
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# Each kernel must show by itself: no command buffers
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_gpu_enable_command_buffer="
os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"] = "0.94"

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas.ops.gpu import ragged_dot_mgpu, transposed_ragged_dot_mgpu

from roofline.diagnosis.trace import read_trace
from roofline.measure.machine import device_facts, now, software_versions

BEGAN = time.perf_counter()
MODES = {"forward": (((1,), (1,)), [0]), "dx": (((1,), (2,)), [0]), "dw": (((0,), (0,)), [])}
DENSE = {"xla_gpu_experimental_use_ragged_dot_fusion": False}


def cudnn():
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return {"cudnn": importlib.metadata.version("nvidia-cudnn-cu13")}
    return {}


def spent():
    return time.perf_counter() - BEGAN


def numbers(mode):
    contracted, group = MODES[mode]
    return jax.lax.RaggedDotDimensionNumbers((contracted, ((), ())), [0], group)


def lax(mode, a, b, sizes):
    kind = numbers(mode)
    return jax.lax.ragged_dot_general(a, b, sizes, kind, preferred_element_type=jnp.bfloat16)


def every_expert(mode, a, b, sizes):
    """Multiply every row by every expert's weights and keep what belongs to it."""
    of = jnp.repeat(jnp.arange(len(sizes)), sizes, total_repeat_length=len(a))[:, None]
    if mode == "dw":
        return jax.lax.map(lambda e: jnp.where(of == e, a, 0).T @ b, jnp.arange(len(sizes)))

    def add(y, one):
        e, w = one
        return jnp.where(of == e, a @ (w if mode == "forward" else w.T), y), None

    wide = b.shape[2 if mode == "forward" else 1]
    return jax.lax.scan(add, jnp.zeros((len(a), wide), a.dtype), (jnp.arange(len(b)), b))[0]


def batched(mode, a, b, sizes):
    """Multiply equal groups as a batch: what a kernel for groups could reach at best."""
    e = len(sizes)
    a = a.reshape(e, len(a) // e, -1)
    if mode == "dw":
        return jnp.einsum("emk,emn->ekn", a, b.reshape(e, a.shape[1], -1))
    y = jnp.einsum("emk,ekn->emn" if mode == "forward" else "emn,ekn->emk", a, b)
    return y.reshape(-1, y.shape[-1])


def pallas(mode, a, b, sizes, *, m, n, steps, wide):
    cut = {"block_m": m, "block_n": n, "block_k": 64, "max_concurrent_steps": steps}
    if mode == "dw":
        call = transposed_ragged_dot_mgpu.transposed_ragged_dot
        return call(a, b, group_sizes=sizes, grid_block_n=wide, **cut)
    call = functools.partial(ragged_dot_mgpu.ragged_dot, transpose_rhs=mode == "dx")
    return call(a, b, group_sizes=sizes, grid_block_n=wide, **cut)


def tokamax(rows, mode):
    """Return tokamax's kernels; the module that reads profiles for its benchmarks isn't needed."""
    for name in ("xprof", "xprof.cli", "xprof.cli.tools", "xprof.cli.tools.get_kernel_stats_tool"):
        sys.modules.setdefault(name, types.ModuleType(name))
    tools = sys.modules["xprof.cli.tools"]
    tools.get_kernel_stats_tool = sys.modules["xprof.cli.tools.get_kernel_stats_tool"]
    from tokamax._src.ops.ragged_dot import pallas_mosaic_gpu as mosaic
    from tokamax._src.ops.ragged_dot import pallas_mosaic_gpu_common as common

    def call(op, mode, a, b, sizes):
        return op(a, b, group_sizes=sizes, ragged_dot_dimension_numbers=numbers(mode))

    large = rows >= 8192 or mode == "dw"
    m, order = (128, common.MatmulDimension.N) if large else (64, common.MatmulDimension.M)
    own = mosaic.Config(m, 64, 128, 4, 1, grid_minor_dim=order, grid_tile_width=8)
    found = {
        "Mosaic as it comes": mosaic.PallasMosaicGpuRaggedDot(),
        f"Mosaic {m}×64×128": mosaic.PallasMosaicGpuRaggedDot(config=own),
    }
    try:
        import tokamax._src.ops.ragged_dot.triton as triton

        m, warps = (128, 8) if large else (32, 4)
        cut = triton.Config(block_m=m, block_n=128, block_k=64, num_warps=warps, num_stages=4)
        found[f"Triton {m}×128×64"] = triton.TritonRaggedDot(config=cut)
    except Exception as error:
        print("no Triton:", repr(error)[:300], flush=True)
    return {f"tokamax {name}": (functools.partial(call, op), {}) for name, op in found.items()}


def ways(family, rows, mode):
    if family == "tokamax":
        return tokamax(rows, mode)
    if family == "pallas":
        found = {}
        for m, n, steps, wide in ((64, 128, 5, 1), (128, 128, 4, 4)):
            cut = functools.partial(pallas, m=m, n=n, steps=steps, wide=wide)
            found[f"Pallas {m}×{n}×64"] = (cut, {})
        return found
    found = {"ragged_dot": (lax, {}), "ragged_dot, no kernel": (lax, DENSE)}
    return found | {"every expert": (every_expert, {}), "batched": (batched, {})}


def routed(experts, tokens, top, load):
    """Return how many rows each expert gets: equally many, or by a Zipf law, top of each token."""
    if load == "equal":
        return np.full(experts, tokens * top // experts, np.int32)
    rng = np.random.default_rng(0)
    score = -np.log(np.arange(1, experts + 1)) + rng.gumbel(size=(tokens, experts))
    chosen = np.argpartition(-score, top - 1, axis=1)[:, :top]
    return np.bincount(chosen.ravel(), minlength=experts).astype(np.int32)


def error_of(mode, out, a, b, sizes):
    """Return the relative error at sixteen rows, or in two experts' gradients."""
    of = np.repeat(np.arange(len(sizes)), sizes)
    if mode == "dw":
        pairs = []
        for e in (int(np.argmax(sizes)), len(sizes) - 1):
            mine = jnp.asarray(of == e)[:, None]
            pairs.append((out[e], jnp.where(mine, a, 0).T @ b))
    else:
        rows = np.linspace(0, len(a) - 1, 16).astype(int)
        kept = b[of[rows]]
        exact = jnp.einsum("rk,rkn->rn" if mode == "forward" else "rn,rkn->rk", a[rows], kept)
        pairs = [(out[rows], exact)]
    off = [jnp.linalg.norm((x - y).astype(jnp.float32)) for x, y in pairs]
    return float(max(off) / max(jnp.linalg.norm(y.astype(jnp.float32)) for _, y in pairs))


def timed(program, *args, times):
    began = time.perf_counter()
    for _ in range(times):
        out = program(*args)
    jax.block_until_ready(out)
    return (time.perf_counter() - began) / times


@functools.partial(jax.jit, static_argnums=0)
def draw(shape, seed):
    return jax.random.normal(jax.random.key(seed), shape, jnp.bfloat16)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--family", choices=("xla", "pallas", "tokamax"), default="xla")
    parser.add_argument("--limit", type=float, default=420)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--only", default="", help="a regular expression of mixture, mode, tokens")
    options = parser.parse_args()
    sys.argv[1:] = []  # they aren't flags of absl, which tokamax reads
    gpu = jax.default_backend() == "gpu"
    mixtures = {
        "8 of 14336, top 2": (8, 4096, 14336, 2),
        "128 of 1536, top 8": (128, 4096, 1536, 8),
    }
    cases = [("forward", t) for t in (16, 128, 1024, 4096, 16384)]
    cases += [(mode, t) for mode in ("dx", "dw") for t in (1024, 16384)]
    if options.tiny:
        mixtures, cases = (
            {"4 of 256, top 2": (4, 128, 256, 2)},
            [("forward", 64), ("dx", 64), ("dw", 64)],
        )
    jobs = []
    for mixture, (e, k, n, top) in mixtures.items():
        for mode, tokens in cases:
            rows = tokens * top
            if not re.search(options.only, f"{mixture}, {mode}, {tokens}"):
                continue
            for way, (call, flags) in ways(options.family, rows, mode).items():
                if way == "every expert" and 2 * e * rows * k * n > 1e14:
                    continue
                if way == "batched" and rows < e:
                    continue
                jobs.append((mixture, mode, tokens, way, call, flags))

    def shapes(mixture, mode, tokens):
        e, k, n, top = mixtures[mixture]
        rows = tokens * top
        a = (rows, n if mode == "dx" else k)
        return (
            a,
            ((rows, n) if mode == "dw" else (e, k, n)),
            (4 if tokens <= 1024 and mode != "dw" else 1),
        )

    def build(number):
        mixture, mode, tokens, _, call, flags = jobs[number]
        a, b, copies = shapes(mixture, mode, tokens)

        def grouped(a, many, sizes):
            return [call(mode, a, b, sizes) for b in many]

        grouped.__name__ = f"grouped{number}"
        s = jax.ShapeDtypeStruct
        sizes = s((mixtures[mixture][0],), jnp.int32)
        lowered = jax.jit(grouped).lower(s(a, jnp.bfloat16), [s(b, jnp.bfloat16)] * copies, sizes)
        return lowered.compile(compiler_options=flags if gpu else None)

    record = {
        "schema": "roofline.evidence/1",
        "what": "grouped matmuls of mixtures, bf16, width 4096: seconds a product",
        "device": device_facts(),
        "software": software_versions() | cudnn(),
        "date": now(),
        "command": f"python -m measurements.grouped --family {options.family} --out FILE",
        "flags": {"XLA_FLAGS": os.environ["XLA_FLAGS"].strip()},
        "cases": [],
    }
    side = 8192 if gpu else 256
    x, wide = draw((side, side), 0), draw((2**30 // 2 if gpu else 2**16,), 1)
    product, add = jax.jit(jnp.matmul), jax.jit(lambda x: x + 1)
    total = jax.jit(lambda x: x.reshape(-1, 4096).astype(jnp.float32).sum(1))
    for name, f, args, amount in (
        ("flops", product, (x, x), 2 * side**3),
        ("add one", add, (wide,), 4 * wide.size),
        ("row sums", total, (wide,), 2 * wide.size),
    ):
        timed(f, *args, times=3)
        seconds = statistics.median(timed(f, *args, times=10) for _ in range(5))
        record.setdefault("reached", {})[name] = amount / seconds
    record["reached"]["bandwidth"] = max(record["reached"][x] for x in ("add one", "row sums"))
    print(record["reached"], record["software"], flush=True)
    del x, wide
    pool = ThreadPoolExecutor(6 if options.family == "xla" else 12)
    built = [pool.submit(build, number) for number in range(len(jobs))]
    while spent() < 0.6 * options.limit and not all(job.done() for job in built):
        time.sleep(0.5)
    for job in built:
        job.cancel()
    pool.shutdown(wait=True)
    print(
        f"[{spent():.0f}] compiled {sum(not j.cancelled() for j in built)} of {len(jobs)}",
        flush=True,
    )
    last = None
    for job_name in dict.fromkeys(job[:3] for job in jobs):
        mixture, mode, tokens = job_name
        e, k, n, top = mixtures[mixture]
        a_shape, b_shape, copies = shapes(mixture, mode, tokens)
        if last != (a_shape, b_shape):
            a = many = None
            a = draw(a_shape, 1)
            many = [draw(b_shape, 2 + c) for c in range(copies)]
            last = a_shape, b_shape
        for load in ("equal", "Zipf"):
            faulthandler.dump_traceback_later(60, exit=True)
            if spent() > options.limit:
                print("time up", flush=True)
                break
            counts = routed(e, tokens, top, load)
            sizes, rows = jnp.asarray(counts), tokens * top
            weights = e if mode == "dw" else int((counts > 0).sum())
            case = {"mixture": mixture, "experts": e, "k": k, "n": n, "mode": mode}
            case |= {"tokens": tokens, "top": top, "load": load, "sizes": counts.tolist()}
            case |= {"flops": 2 * rows * k * n, "bytes": 2 * (weights * k * n + rows * (k + n))}
            reached = record["reached"]
            case["roof"] = max(
                case["flops"] / reached["flops"], case["bytes"] / reached["bandwidth"]
            )
            case["ways"] = {}
            ran = []
            for number, job in enumerate(jobs):
                way = job[3]
                if job[:3] != job_name or (way == "batched" and load != "equal"):
                    continue
                row = case["ways"][way] = {}
                try:
                    if built[number].cancelled():
                        raise TimeoutError("not compiled in time")
                    failed = built[number].exception()
                    program = build(number) if failed else built[number].result()
                    row["temporary"] = program.memory_analysis().temp_size_in_bytes
                    out = program(a, many, sizes)
                    row["error"] = error_of(mode, out[0], a, many[0], counts)
                    del out
                    once = timed(program, a, many, sizes, times=1)
                    times = max(1, min(20, int(0.02 / once)))
                    runs = [timed(program, a, many, sizes, times=times) for _ in range(5)]
                    row["seconds"] = [s / copies for s in runs]
                    ran.append((number, way, program))
                except Exception as error:
                    row["failed"] = f"{type(error).__name__}: {error}"[:400]
            with tempfile.TemporaryDirectory() as folder:
                settings = jax.profiler.ProfileOptions()
                settings.python_tracer_level = 0
                jax.profiler.start_trace(folder, profiler_options=settings)
                for _, _, program in ran:
                    jax.block_until_ready([program(a, many, sizes) for _ in range(2)])
                jax.profiler.stop_trace()
                kernels = defaultdict(lambda: defaultdict(list))
                for event in read_trace(folder).events if ran else ():
                    kernels[event.program][event.label or event.op].append(event.seconds)
            for number, way, _ in ran:
                row = case["ways"][way]
                row["kernels"] = {
                    name: [len(s) / 2 / copies, sum(s) / 2 / copies]
                    for name, s in kernels[f"jit_grouped{number}"].items()
                }
            record["cases"].append(case)
            options.out.write_text(json.dumps(record))
            print(
                f"[{spent():.0f}]", mixture, mode, tokens, load, f"roof {1e6 * case['roof']:.0f} µs"
            )
            for way, row in case["ways"].items():
                took = 1e6 * statistics.median(row["seconds"]) if "seconds" in row else 0
                what = f"{took:.0f} µs, error {row['error']:.1e}" if took else row["failed"][:160]
                top3 = sorted(row.get("kernels", {}).items(), key=lambda i: -i[1][1])[:3]
                names = ", ".join(f"{c:.4g}×{x[:40]} {1e6 * s:.0f}" for x, (c, s) in top3)
                print("  ", way, what, "|", names, flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
