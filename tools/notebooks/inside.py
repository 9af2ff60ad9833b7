"""What runs in a notebook's kernel when it is executed for the checks (`tools.notebooks.once`).

Programs that the TPU compiler has made are taken from those that are kept; this machine is measured
for moments, with small arrays; and `jax.jit` remembers what the notebook asked it to trace, so that
all of it is compiled for Colab's TPUs at the end.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from operator import is_
from typing import Any

from roofline_helpers import measure
from roofline_helpers.measure import programs as timing_programs
from roofline_helpers.measure import running, timing, workloads
from tools import programs

CHIPS = ("v5e", "v6e")
CACHE = 2**19  # bytes
SMALLER = 8  # times, the sides of what is measured
FASTER = 20  # times, the clock of loops of the notebooks and of the package
PLAIN = "--xla_cpu_use_fusion_emitters=false"
# Functions that no TPU program can hold, with the reason
EXCUSED = {"through_python": "calls Python on the host, which a topology does not have"}
seen: dict[tuple[str, str, str], tuple[Any, Any, dict[str, Any]]] = {}


class Remembered:
    """A function that `jax.jit` made, which keeps what it was called with.

    Called again with the very same arrays, as loops that time it do, it returns what it gave:
    nobody compares how long that took. Where arrays may be donated it is called each time.
    """

    def __init__(self, fn: Any, options: dict[str, Any], jit: Callable[..., Any]) -> None:
        self.fn, self.options, self.jitted = fn, options, jit(fn, **options)
        self.last: tuple[tuple[Any, ...], Any] | None = None

    def _note(self, args: tuple[Any, ...]) -> None:
        import jax

        shapes = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), args)
        name = getattr(self.fn, "__name__", repr(self.fn))
        seen[name, str(shapes), str(self.options)] = self.fn, shapes, self.options

    def __call__(self, *args: Any) -> Any:
        if self.last and len(args) == len(self.last[0]) and all(map(is_, args, self.last[0])):
            return self.last[1]
        self._note(args)
        result = self.jitted(*args)
        self.last = None if self.options else (args, result)
        return result

    def lower(self, *args: Any) -> Any:
        """Lower it, as the function that `jax.jit` makes does."""
        self._note(args)
        return self.jitted.lower(*args)


def remember() -> None:
    """Let `jax.jit` remember what the notebook gives it, but not what libraries do."""
    import jax

    jit = jax.jit

    def jit_of_the_book(fn: Any, **options: Any) -> Any:
        mine = sys._getframe(1).f_globals.get("__name__") == "__main__"
        return Remembered(fn, options, jit) if mine else jit(fn, **options)

    jax.jit = jit_of_the_book


def hasten() -> None:
    """Measure this machine for moments, with small arrays: nobody compares these numbers."""
    memory, levels, matmul = measure.memory_cases, measure.level_cases, measure.matmul_case
    vector, kernels, clock = measure.vector_case, measure.kernel_cases, timing.clock
    area = SMALLER**2
    small: dict[str, Callable[..., Any]] = {
        "memory_cases": lambda size, *more: memory(size // area, *more),
        "level_cases": lambda sizes, *more: levels([one // area for one in sizes], *more),
        "matmul_case": lambda m, n, k, *more, **options: matmul(
            m // SMALLER, n // SMALLER, k // SMALLER, *more, **options
        ),
        "vector_case": lambda dtype, n, steps=256: vector(dtype, n // SMALLER, steps // SMALLER),
        "kernel_cases": lambda rows, columns: kernels(rows // SMALLER, columns // SMALLER),
    }
    for module in (measure, workloads):
        vars(module).update(small)
    vars(workloads)["last_cache"] = vars(timing_programs)["last_cache"] = lambda: CACHE
    for module in (timing_programs, running):
        vars(module)["clock"] = lambda *args, **how: clock(
            *args, **{**how, "seconds": 0.005, "least": 0.001, "warm": 0.0}
        )
    # Loops of the notebooks and of the package go on until a time is over: by their clock that is
    # sooner; other libraries keep the true one (Matplotlib says so where a legend takes a second)
    real = time.perf_counter

    def clock_of_the_book() -> float:
        caller = str(sys._getframe(1).f_globals.get("__name__"))
        mine = caller.split(".")[0] in {"__main__", "roofline_helpers"}
        return FASTER * real() if mine else real()

    vars(time)["perf_counter"] = clock_of_the_book


def begin(traced: bool, timed: bool) -> None:
    """Prepare the kernel before the first cell.

    `traced` is whether the notebook names jax.jit, `timed` whether it measures this machine. One
    that doesn't compiles more than it computes here: without optimising that takes half as long,
    with XLA's older emitters a third less again.
    """
    if not timed:
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {PLAIN}"  # before JAX starts

    import jax

    programs.install()
    hasten()
    jax.config.update(programs.HASTY, not timed)
    if traced:
        remember()


def end() -> None:
    """Compile what was remembered for both chips, and print how that went."""
    from roofline_helpers import compiled

    done, failed = [], []
    for (name, shown, _), (fn, shapes, options) in seen.items():
        if name in EXCUSED:
            continue
        for chip in CHIPS:
            try:
                report = compiled.analyze(fn, *shapes, chip=chip, strict=True, **options)
                done.append([name, chip, len(report.kernels)])
            except Exception as error:
                failed.append([name, chip, shown[:200], f"{type(error).__name__}: {error}"])
    print(json.dumps({"done": done, "failed": failed}))
