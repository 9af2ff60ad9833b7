"""Measured kernels: records of whole devices, and tables of GPU kernels with laws fitted to them.

`device_records` are measurements of one device each, its ceilings and kernels with their counts;
`measurements/README.md` names the scripts that made them. `table` has the kernels that others
measured on GPUs, `law` the time model fitted to a family of them. `expected` says what is normal
for a kernel, by these and by kernels as XLA makes them, and `judge` whether a time is good.
"""

from __future__ import annotations

from roofline_helpers.measured.judging import expected, judge
from roofline_helpers.measured.laws import law, laws_of
from roofline_helpers.measured.libraries import seconds_like
from roofline_helpers.measured.record import Record, Sample, Timing, device_records
from roofline_helpers.measured.tables import NoData, families, table

__all__ = [
    "device_records",
    "Record",
    "Sample",
    "Timing",
    "table",
    "families",
    "law",
    "laws_of",
    "expected",
    "seconds_like",
    "judge",
    "NoData",
]
