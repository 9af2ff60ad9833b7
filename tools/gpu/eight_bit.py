"""Measure fp8 and int8 products on a GPU through every path that JAX has, beside PyTorch's.

    python -m tools.gpu.eight_bit --out FILE.json [--merge h100.json] [--deadline S] [--tiny]

XLA may compile a product with Triton or call cuBLASLt, whose fp8 kernels want the second matrix
transposed. Each way is measured, and the record's notes name the kernel that ran. Next to FILE
lies FILE.hlo.txt with what XLA made of each product.
"""

from __future__ import annotations

import argparse
import glob
import gzip
import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from roofline_helpers import measure, work
from roofline_helpers.measure import Case, array
from roofline_helpers.measure.case import kind_of
from tools.gpu.pytorch import Torch, torch_or_none
from tools.gpu.state import probe

GROUP = "eight-bit"
"""What runs below its ceiling, or not on random numbers; the rest is of the group "compute"."""
LIBRARY = {"xla_gpu_enable_triton_gemm": False}
FAST = jax.lax.DotAlgorithmPreset.ANY_F8_ANY_F8_F32_FAST_ACCUM
OUT = {"fp8": "bf16", "int8": "int32", "bf16": "bf16"}


def plain(dtype: str, turned: bool, precision: Any = None) -> Callable[..., Any]:
    """Return A · B, or A · Bᵀ, in the type of its sum."""
    dims = (((1,), (1 if turned else 0,)), ((), ()))

    def product(a: Any, b: Any) -> Any:
        out = kind_of(OUT[dtype])
        return jax.lax.dot_general(a, b, dims, precision=precision, preferred_element_type=out)

    return product


def scaled(a: Any, b: Any) -> Any:
    """Return A · Bᵀ of numbers with a scale for each matrix, as fp8 is used in training."""
    half = jnp.bfloat16
    left, right = a.astype(half) * half(0.5), b.astype(half) * half(0.25)
    return jax.lax.dot_general(left, right, (((1,), (1,)), ((), ())), preferred_element_type=half)


def cases(tiny: bool) -> list[Case]:
    """Return the products to measure, the most telling first."""
    made: list[Case] = []

    def add(side: int, dtype: str, label: str, fn: Callable[..., Any], **extra: Any) -> None:
        n = 64 if tiny else side
        zeros, options = extra.pop("zeros", False), extra.pop("options", LIBRARY)

        def make() -> tuple[Any, ...]:
            if zeros:
                return tuple(jnp.zeros((n, n), kind_of(dtype)) for _ in range(2))
            return array(n, n, dtype=dtype), array(n, n, dtype=dtype)

        name = f"matmul {side}×{side}×{side} {dtype}, {label}"
        job = work.matmul(n, n, n, dtype, out=OUT[dtype])
        options = {"compiler_options": options} if options else {}
        warm = 0.0 if tiny else 0.7
        group = "compute" if "B transposed" in label and not zeros else GROUP
        made.append(Case(name, group, job, make, fn, warm=warm, options=options, **extra))

    turned = "B transposed, cuBLASLt"
    add(8192, "fp8", turned, plain("fp8", True))
    add(8192, "fp8", "B transposed, cuBLASLt, fast sums", plain("fp8", True, FAST))
    add(8192, "fp8", "scaled, B transposed, cuBLASLt", scaled)
    add(8192, "fp8", "cuBLASLt", plain("fp8", False))
    add(8192, "int8", turned, plain("int8", True))
    add(8192, "int8", "cuBLASLt", plain("int8", False))
    add(8192, "bf16", turned, plain("bf16", True))
    add(8192, "fp8", "B transposed, cuBLASLt, zeros", plain("fp8", True), zeros=True)
    add(8192, "int8", "B transposed, cuBLASLt, zeros", plain("int8", True), zeros=True)
    for side in (4096, 16384):
        for dtype in ("fp8", "int8"):
            add(side, dtype, turned, plain(dtype, True))
    made += in_torch(tiny)
    for dtype in ("fp8", "int8"):
        for label, flipped in (("", False), ("B transposed, ", True)):
            add(8192, dtype, f"{label}compiler's choice", plain(dtype, flipped), options=None)
    return made


def in_torch(tiny: bool) -> list[Case]:
    """Return PyTorch's own fp8 and int8 products, which call cuBLASLt."""
    torch = torch_or_none()
    if torch is None:
        return []
    n = 64 if tiny else 8192

    def numbers(kind: Any) -> tuple[Any, Any]:
        a, b = (torch.randn(n, n, device="cuda") for _ in range(2))
        if kind == torch.int8:
            a, b = ((20 * each).round().clamp(-127, 127) for each in (a, b))
        return a.to(kind), b.to(kind).t()

    def fp8(fast: bool) -> Callable[..., Any]:
        one = torch.ones((), device="cuda")

        def start(a: Any, b: Any) -> Torch:
            options = {"out_dtype": torch.bfloat16, "use_fast_accum": fast}
            return Torch(lambda: torch._scaled_mm(a, b, one, one, **options))

        return start

    ways = {
        "fp8, B transposed": (torch.float8_e4m3fn, fp8(False)),
        "fp8, B transposed, fast sums": (torch.float8_e4m3fn, fp8(True)),
        "int8, B transposed": (torch.int8, lambda a, b: Torch(lambda: torch._int_mm(a, b))),
    }
    made = []
    for label, (kind, start) in ways.items():
        dtype = label.split(",")[0]
        job = work.matmul(n, n, n, dtype, out=OUT[dtype])
        name = f"matmul 8192×8192×8192 {label}"

        def make(kind: Any = kind) -> tuple[Any, ...]:
            return numbers(kind)

        warm = 0.0 if tiny else 0.7
        made.append(Case(name, GROUP, job, make, start=start, source="torch", needs=0.0, warm=warm))
    return made


def seen(case: Case) -> tuple[list[str], str]:
    """Return the names of the GPU kernels that a case runs, by a trace, and its program."""
    arrays = case.make()
    if case.start is not None:
        torch = torch_or_none()
        run = case.start(*arrays)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as trace:
            run.launch(3)
            run.wait()
        return sorted({event.name for event in trace.events() if "Mem" not in event.name}), ""
    assert case.fn is not None
    compiled = jax.jit(case.fn, **case.options).lower(*arrays).compile()
    jax.block_until_ready(compiled(*arrays))
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            jax.block_until_ready([compiled(*arrays) for _ in range(3)])
        files = glob.glob(f"{folder}/**/*.trace.json.gz", recursive=True)
        text = gzip.decompress(Path(files[0]).read_bytes()) if files else b'{"traceEvents": []}'
        events = json.loads(text)["traceEvents"]
    named = {e["pid"]: e["args"].get("name", "") for e in events if e.get("name") == "process_name"}
    kernels = {
        e["name"] for e in events if e.get("ph") == "X" and "GPU" in named.get(e.get("pid"), "")
    }
    return sorted(kernels), compiled.as_text()


def main() -> int:
    """Measure, name the kernels, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", required=True)
    parser.add_argument("--merge")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--deadline", type=float, default=None)
    options = parser.parse_args()
    chosen = cases(options.tiny)
    record = measure.run(
        chosen=chosen,
        passes=2,
        seconds=0.15,
        deadline=options.deadline,
        command="python -m tools.gpu.eight_bit",
        partial=options.out + ".partial",
        probe=probe(),
    )
    record.save(options.out)
    samples, programs = list(record.samples), []
    for case in chosen:
        if not case.options and case.start is None:
            continue  # the compiler's choice takes its tuning, half a minute, once more
        try:
            kernels, text = seen(case)
        except Exception as error:  # a name that can't be read loses no measurement
            kernels, text = [f"unknown: {type(error).__name__}: {error}"], ""
        programs.append(f"==== {case.name} [{case.source}]\n{kernels}\n{text}\n")
        Path(options.out + ".hlo.txt").write_text("\n".join(programs))
        for i, sample in enumerate(samples):
            if (sample.name, sample.source) == case.key:
                note = f"kernels: {', '.join(kernels)}"
                samples[i] = replace(sample, notes=(*sample.notes, note))
    record = replace(record, samples=tuple(samples))
    if options.merge:
        record = measure.merge(measure.load(options.merge), record)
    record.save(options.out)
    for s in record.samples:
        if (s.name, s.source) in {case.key for case in chosen}:
            state = s.state or {}
            rate = f"{s.rate / 1e12:.0f} TFLOP/s" if s.passes else f"FAILED {s.error}"
            clock = f"{state.get('clock', 0) / 1e6:.0f} MHz {state.get('power', 0):.0f} W"
            print(f"{s.name} [{s.source}]: {rate}, {clock}, {s.notes}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
