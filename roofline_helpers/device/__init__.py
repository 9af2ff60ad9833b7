"""This device: its measured ceilings, and where the time of a function goes on it.

::

    import roofline_helpers as rh
    rh.device.time(jnp.sin, x)          # seconds of one call, with their spread
    record = rh.device.run(quick=True)  # ceilings and kernels of this device
    record.roofline("bf16")              # the measured roofline

The same from a shell: ``python -m roofline_helpers measure --out FILE.json``.

How time is measured:

- The function is compiled before the clock starts, and called until it is warm.
- The buffers of one call's results are given to the next ("donated"), so that no call waits for
  fresh memory: on a CPU its page faults can take several times longer than the work.
- Inputs are larger than the last cache, or several sets of them are used in turn.
- Many calls are queued, then awaited once: enough to make the clock's own error negligible.
- That is repeated. The result is the median, with quartiles. A drift, or a wide spread, is noted in
  the result.

JAX is imported when it is needed. A function that fails raises `CannotRun`, a profile that names no
kernels `CannotProfile`.

Why is this function slow? Predicted, compiled and measured, kernel by kernel::

    why = rh.explain(step, weights, batch)   # runs it here
    why                                      # rows, waterfall, named causes
    why.save("why.html")                     # one file to send on

One file per topic: `timing` (the clock), `workloads` and `multi_device` (the measured cases),
`machine`, `record`; `explain` (the call), `runner` (runs with and without the profiler), `trace`
(the profiler's file), `program` (the compiled program as a graph), `rows` (trace and program
merged, under the `ceilings`), `findings` (causes), `explanation` (the result and its record),
`ladder` (several versions of one job); `display`, `page` and `pictures` show it.
"""

from __future__ import annotations

from roofline_helpers.device.explain import explain
from roofline_helpers.device.explanation import Explanation, load_explanation
from roofline_helpers.device.record import Record, Sample, beside, load, measured
from roofline_helpers.device.timing import CannotRun, Timing, time
from roofline_helpers.device.trace import CannotProfile
from roofline_helpers.device.workloads import run

__all__ = [
    "explain",
    "Explanation",
    "load_explanation",
    "Record",
    "Sample",
    "beside",
    "load",
    "measured",
    "CannotRun",
    "Timing",
    "time",
    "CannotProfile",
    "run",
]
