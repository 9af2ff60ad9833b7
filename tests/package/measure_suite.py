"""What the tests of measuring share: small cases, and records made by hand with known times."""

from dataclasses import replace

from roofline import measure
from roofline.measure.timing import summary
from roofline.measure.workloads import Case
from roofline_helpers import work
from roofline_helpers.measured import Record, Sample


def numbers(n=1000):
    import jax.numpy as jnp

    return jnp.arange(n, dtype=jnp.float32)


def case(name, fn=None, **changes):
    job = work.elementwise(2**12, 1, 1, 1, "fp32")
    base = Case(name, "kernels", job, lambda: (numbers(2**12),), fn or (lambda x: x + 1))
    return replace(base, **changes)


def run(*cases, **options):
    return measure.run(chosen=cases, seconds=0.003, progress=False, **options)


def timed(name, *medians, **changes):
    """A sample of a kernel, with one pass of each median: 4 kFLOP over 32 KiB of fp32."""
    base = Sample(name, "kernels", "jax", "fp32", 4096.0, 0.0, 32768.0)
    return replace(base, passes=tuple(summary([m]) for m in medians), **changes)


def ceilings():
    """Streams of 2, 4 … 14 GB/s, products of 1 to 3 TFLOP/s, a vector ceiling, two kernels."""
    streams = ("read", "write", "copy", "scale", "scale in place", "add", "triad")
    samples = [
        timed(f"{name} {size} fp32", 1e-6, group="memory", flops=0.0, bytes=2000.0 * n * share)
        for size, share in (("16 KiB", 1.0), ("8 KiB", 0.5))
        for n, name in enumerate(streams, 1)
    ]
    for n, dtype in enumerate(("fp32", "bf16", "int8"), 1):
        name = f"matmul 32×32×32 {dtype}"
        samples.append(timed(name, 1e-6, group="compute", dtype=dtype, flops=1e6 * n))
    samples.append(timed("16 multiply-adds", 1e-6, group="vector", flops=5e5))
    return [*samples, timed("GELU 64×64 fp32", 1e-5), timed("softmax 64×64 fp32", 2e-5)]


def record(*samples, **changes):
    """A record of an invented CPU; with the samples of `ceilings` if none is given."""
    base = Record(
        device={
            "platform": "cpu",
            "kind": "cpu",
            "name": "Invented 1",
            "chip": None,
            "count": 1,
            "driver": None,
            "memory": 2**33,
            "cache": 2**25,
        },
        host={"system": "Linux 6", "machine": "x86_64", "cpu": "Invented 1", "cores": 2, "load": 0},
        software={"python": "3.11", "jax": "0.10.2"},
        date="2026-01-02T03:04:05Z",
        command="python -m roofline measure",
        samples=samples or tuple(ceilings()),
    )
    return replace(base, **changes)
