"""Measured kernels: records of whole devices, and tables of GPU kernels with laws fitted to them.

`device_records` are measurements of one device each, made by `roofline.measure`: its ceilings, and
kernels with their counts. `table` has the kernels that others measured on GPUs, `laws` the time
models fitted to them, and `typical` the rates of those like yours.
"""

from __future__ import annotations

from roofline_helpers.measured.law import NoData, laws, laws_of
from roofline_helpers.measured.record import Record, Sample, Timing, device_records, load
from roofline_helpers.measured.tables import families, table
from roofline_helpers.measured.typical import typical

__all__ = [
    "device_records",
    "Record",
    "Sample",
    "Timing",
    "load",
    "table",
    "families",
    "laws",
    "laws_of",
    "typical",
    "NoData",
]
