"""Measure: what this device really gives, and how close kernels come to it.

    import roofline_helpers as rh
    rh.measure.time(jnp.sin, x)          # seconds of one call, with their spread
    record = rh.measure.run(quick=True)  # ceilings and kernels of this device
    record.roofline("bf16")              # the measured roofline

The same from a shell: ``python -m roofline_helpers measure --out FILE.json``.

How a time is taken:

- The function is compiled before the clock starts, and called until it is warm.
- The buffers of one call's results are given to the next ("donated"), so that no call waits for
  fresh memory: on a CPU its page faults can take several times longer than the work.
- Inputs are larger than the last cache, or several sets of them take turns.
- Many calls are queued, then awaited once; so many that the clock's own error doesn't count.
- That is repeated. The median is the result; quartiles say how far to trust it. Times that creep
  up or down, or differ widely, are noted in the result.

JAX is imported when it is needed.
"""

from __future__ import annotations

from roofline_helpers.measure.case import JAX_DTYPES, Case, array
from roofline_helpers.measure.command import main, report
from roofline_helpers.measure.committed import (
    COMPARED,
    TRIAL,
    beside,
    compared,
    measured,
    trial,
)
from roofline_helpers.measure.joining import combine, merge
from roofline_helpers.measure.machine import (
    Device,
    Host,
    busy,
    device,
    free_memory,
    host,
    last_cache,
    software,
)
from roofline_helpers.measure.programs import jax_program, time
from roofline_helpers.measure.record import SCHEMA, Record, load
from roofline_helpers.measure.running import run
from roofline_helpers.measure.sample import CEILINGS, OURS, Sample
from roofline_helpers.measure.timing import (
    DRIFT,
    MOST_CALLS,
    UNSTABLE,
    CannotTime,
    Program,
    Timing,
    clock,
    summary,
)
from roofline_helpers.measure.workloads import (
    cases,
    kernel_cases,
    level_cases,
    matmul_case,
    memory_cases,
    vector_case,
)

__all__ = [
    "SCHEMA",
    "UNSTABLE",
    "DRIFT",
    "MOST_CALLS",
    "JAX_DTYPES",
    "CannotTime",
    "Timing",
    "Program",
    "time",
    "clock",
    "summary",
    "jax_program",
    "Device",
    "Host",
    "last_cache",
    "free_memory",
    "device",
    "host",
    "software",
    "Case",
    "Sample",
    "COMPARED",
    "TRIAL",
    "Record",
    "CEILINGS",
    "OURS",
    "load",
    "measured",
    "compared",
    "trial",
    "beside",
    "combine",
    "merge",
    "array",
    "memory_cases",
    "level_cases",
    "matmul_case",
    "vector_case",
    "kernel_cases",
    "cases",
    "run",
    "busy",
    "main",
    "report",
]
