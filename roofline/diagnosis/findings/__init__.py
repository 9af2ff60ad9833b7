"""Causes of lost time, by name: a closed list, each with its evidence and an estimate.

The estimate is the time of a cause's kernels less their time without it. A gain is promised only as
a range that pairs of programs had. There is always a finding: if no cause explains the longest
kernel, one says how near it is to its roof.

One file per family of causes, with their detectors: `copies` (copies, layouts, slices),
`arithmetic` (data types, units, shapes of matmuls), `excess` (work that the result doesn't need),
`fusion` (tensors written and read again, sorts), `idle` (launches, the host), `devices` (several
of them); `detect` has their order.
"""

from roofline.diagnosis.findings.causes import CAUSES, Case, Cause, Check, Finding
from roofline.diagnosis.findings.detect import findings

__all__ = ["CAUSES", "Case", "Cause", "Check", "Finding", "findings"]
