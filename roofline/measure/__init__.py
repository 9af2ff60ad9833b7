"""The clock on this device, and the ceilings that it reaches.

::

    import roofline
    roofline.measure.time(jnp.sin, x)          # seconds of one call, with their spread
    record = roofline.measure.run(quick=True)  # ceilings and kernels of this device
    record.roofline("bf16")                    # the measured roofline

The function is compiled and warm before the clock starts. Each call writes into the memory of the
results before (*donated*), since fresh memory can cost a CPU more than the work. Inputs are larger
than the last cache, or several sets of them take turns. Many calls are queued and awaited once, so
that the clock's own error is negligible. The result is the median of several such samples, with
quartiles; a drift or a wide spread is noted in it.

`timing` has the clock, `machine` the device and host, `workloads` and `multi_device` the cases,
`report` a record as text, picture and file.
"""

from __future__ import annotations

from roofline.measure.report import draw, load, same_device, save
from roofline.measure.timing import CannotRun, time
from roofline.measure.workloads import run

__all__ = ["time", "run", "draw", "load", "same_device", "save", "CannotRun"]
