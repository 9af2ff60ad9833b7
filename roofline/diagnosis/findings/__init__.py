"""Causes of lost time, by name: a closed list, each with its evidence and an estimate.

The estimate is the time of a cause's kernels now minus their time without it, never more than the
measured time. A gain is promised only as a range that was measured on pairs of programs. Findings
are sorted by their estimates, and there is always one: if no cause explains the longest kernel, it
says how near that kernel is to its roof.

One file per family of causes, with their detectors: `copies` (copies, layouts, slices),
`arithmetic` (data types, units, shapes of matmuls), `excess` (work that the result doesn't need),
`fusion` (tensors written and read again, sorts), `idle` (launches, the host), `devices` (several
of them); `detect` has their order.
"""

from roofline.diagnosis.findings.causes import CAUSES, Case, Cause, Check, Finding
from roofline.diagnosis.findings.detect import findings

__all__ = ["CAUSES", "Case", "Cause", "Check", "Finding", "findings"]
