"""How much longer `analyze` takes than the bare compilation.

    python -m tools.analyze_speed [KERNEL ...]

Each kernel of the tests' suite is lowered and compiled by JAX alone, and analysed, for TPU v6e, in
turn and each in a fresh trace; printed are seconds by the clock and of processor time, their ratios
and the medians of these. On a busy machine only the processor's time says anything.
"""

from __future__ import annotations

import importlib
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from tools import books

CHIP = "v6e"
QUICK = ("matmul-square", "layernorm", "softmax", "attention", "scan-10", "pallas", "scatter-add")
"""What is measured unless kernels are named."""


def seconds(run: Callable[[], Any]) -> tuple[float, float]:
    """Return how long a call takes by the clock, and the processor time that it costs."""
    started, busy = time.perf_counter(), sum(os.times()[:4])
    run()
    return time.perf_counter() - started, sum(os.times()[:4]) - busy


def both(fn: Any, args: tuple[Any, ...], options: dict[str, Any]) -> list[tuple[float, float]]:
    """Return the seconds of the bare compilation and of the analysis, as `seconds` does."""
    import jax
    from jax.sharding import SingleDeviceSharding

    from roofline_helpers import compiled
    from roofline_helpers.compiled import targets
    from roofline_helpers.compiled.quiet import quiet
    from roofline_helpers.hardware import chip

    place = SingleDeviceSharding(targets.all_devices(chip(CHIP), "2x2")[0])

    def moved(leaf: Any) -> Any:
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place)

    def bare() -> None:
        with quiet():
            jax.jit(fn, **options).lower(*jax.tree.map(moved, args)).compile()

    analysed = seconds(lambda: compiled.analyze(fn, *args, chip=CHIP, **options))
    jax.clear_caches()
    alone = seconds(bare)
    jax.clear_caches()
    return [alone, analysed]


def main(names: list[str]) -> None:
    """Print the seconds of each kernel, and the median ratio."""
    sys.path.insert(0, str(books.ROOT / "tests/package"))
    SUITE = importlib.import_module("compiled_suite").SUITE

    ratios = []
    both(*SUITE["matmul-square"].make())  # the compiler's own start
    for name in names or QUICK:
        alone, analysed = both(*SUITE[name].make())
        ratios.append([there / here for here, there in zip(alone, analysed, strict=True)])
        print(
            f"{name:20} alone {alone[0]:6.2f} s ({alone[1]:6.2f} of the processor), "
            f"analysed {analysed[0]:6.2f} s ({analysed[1]:6.2f}): "
            f"{ratios[-1][0]:.2f} ({ratios[-1][1]:.2f})"
        )
    clock, processor = (statistics.median(each) for each in zip(*ratios, strict=True))
    print(f"median {clock:.2f} by the clock, {processor:.2f} of processor time")


if __name__ == "__main__":
    main(sys.argv[1:])
