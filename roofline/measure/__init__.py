"""The clock on this device, and the ceilings that it reaches.

::

    import roofline
    roofline.measure.time(jnp.sin, x)          # seconds of one call, with their spread
    record = roofline.measure.run(quick=True)  # ceilings and kernels of this device
    record.roofline("bf16")                    # the measured roofline

The same from a shell: ``python -m roofline measure --out FILE.json``.

How time is measured:

- The function is compiled before the clock starts, and called until it is warm.
- The buffers of one call's results are given to the next ("donated"), so that no call waits for
  fresh memory: on a CPU its page faults can take several times longer than the work.
- Inputs are larger than the last cache, or several sets of them are used in turn.
- Many calls are queued, then awaited once: enough to make the clock's own error negligible.
- That is repeated. The result is the median, with quartiles. A drift, or a wide spread, is noted in
  the result.

One file per topic: `timing` (the clock), `machine` (device and host), `workloads` and
`multi_device` (the measured cases), `report` (a record as text, and as a file). JAX is imported
when it is needed. A function that fails raises `CannotRun`.
"""

from __future__ import annotations

from roofline.measure.report import save
from roofline.measure.timing import CannotRun, time
from roofline.measure.workloads import run

__all__ = ["time", "run", "save", "CannotRun"]
