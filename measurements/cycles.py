"""The TPU compiler's cycles against published times, and what they say where nothing was timed.

    python -m measurements.cycles

Products and copies that others measured on a v7x and a v6e are compiled, and the compiler's
estimate is held against their times. Reductions along the last axis, with exponentials and without,
are held against the roof, and products with more and more columns show the width of the matrix
unit. Needs the TPU compiler, so Linux on x86-64.
"""

from collections.abc import Callable
from typing import Any

from roofline import evidence
from roofline.xla import analyze
from roofline.xla.targets import compiler_version, jax_version
from roofline_helpers import chips

PRODUCTS = {"v7x": (128, 256, 512, 1024, 2048, 4096, 16384), "v6e": (8192,)}
COPIES = {  # bytes of the tensor, and GB/s of a device: hbm.md and README.md of tpu-recipes
    "v7x": {
        2097152: 1379.335021,
        16777216: 2757.308985,
        134217728: 3176.50274,
        1073741824: 3198.414211,
    },
    "v6e": {33554432: 1359.5960438266143},
}
SHAPE = (4, 32, 2048, 2048)
COLUMNS = (128, 256, 384, 512, 640, 768)


def _of(chip: str, function: Callable[..., Any], *arguments: Any) -> dict[str, float]:
    """Return the compiler's cycles of a program, and its least seconds at the roof."""
    report = analyze(function, *arguments, chip=chip)
    cycles = sum((kernel.work.cycles or 0) * kernel.launches for kernel in report.kernels)
    return {"cycles": cycles, "roof": report.time_at_roof or 0.0}


def products() -> list[dict[str, Any]]:
    """Return square bf16 products of one device, against published rates."""
    import jax

    rows = []
    for chip, sides in PRODUCTS.items():
        published = chips.chip(chip).per_device().reached.sizes["bf16"]
        for n in sides:
            x = jax.ShapeDtypeStruct((n, n), "bfloat16")
            times = _of(chip, lambda a, b: a @ b, x, x)
            name = f"matmul {n}×{n}×{n} bf16"
            rows.append(_row("matmul", chip, name, times, 2 * n**3 / published[n]))
    return rows


def copies() -> list[dict[str, Any]]:
    """Return copies of a tensor on one device, against published bandwidths."""
    import jax

    rows = []
    for chip, rates in COPIES.items():
        for n, rate in rates.items():
            x = jax.ShapeDtypeStruct((n // 2 // 1024, 1024), "bfloat16")
            times = _of(chip, lambda x: x.copy(), x)
            rows.append(_row("copy", chip, f"copy of {n // 2**20} MiB", times, 2 * n / rate / 1e9))
    return rows


def reductions() -> list[dict[str, Any]]:
    """Return reductions along the last axis, with exponentials and without; nobody timed them."""
    import jax
    import jax.numpy as jnp

    programs: dict[str, Callable[[Any], Any]] = {
        "sum": lambda x: x.sum(-1),
        "max": lambda x: x.max(-1),
        "sum of exp": lambda x: jnp.exp(x.astype("float32")).sum(-1),
        "softmax": lambda x: jax.nn.softmax(x, -1),
    }
    x = jax.ShapeDtypeStruct(SHAPE, "bfloat16")
    return [
        _row("reduction", chip, f"{name} of {'×'.join(map(str, SHAPE))} bf16", _of(chip, f, x))
        for chip in ("v5e", "v6e")
        for name, f in programs.items()
    ]


def columns() -> list[dict[str, Any]]:
    """Return bf16 products of 4096 × 4096 with few columns; nobody timed them."""
    import jax

    x = jax.ShapeDtypeStruct((4096, 4096), "bfloat16")
    return [
        _row("columns", chip, f"matmul 4096×{n}×4096 bf16", _of(chip, lambda a, b: a @ b, x, y))
        for chip in ("v5e", "v6e")
        for n in COLUMNS
        for y in [jax.ShapeDtypeStruct((4096, n), "bfloat16")]
    ]


def _row(
    kind: str, chip: str, name: str, times: dict[str, float], seconds: float | None = None
) -> dict[str, Any]:
    return {"kind": kind, "chip": chip, "program": name, **times, "published": seconds}


def main() -> None:
    """Compile everything and keep it."""
    by = {"jax": ".".join(map(str, jax_version())), "compiler": compiler_version("tpu")}
    rows = [*products(), *copies(), *reductions(), *columns()]
    evidence.save("cycles", {"software": by, "rows": rows})
    for row in rows:
        rate = row["cycles"] / row["published"] / 1e9 if row["published"] else None
        print(row["chip"], row["program"], row["cycles"], row["roof"], rate)


if __name__ == "__main__":
    main()
