"""Causes of lost time, by name: a closed list, each with its evidence and an estimate.

The estimate is what a cause's kernels take now minus what they would take without it, never more
than was measured. Seconds are promised only as a range that pairs of programs gained. Findings come
sorted by their estimates, and there is always one: where no cause explains the kernel that takes
longest, it says how near its roof that is.

One file a family of causes, each with its detector: `moving` (copies, layouts, slices), `numbers`
(data types, units, shapes of matmuls), `fusing` (what is written and read again, sorts), `waiting`
(launches, the host, other devices); `detect` has their order.
"""

from roofline_helpers.device.findings.causes import CAUSES, Case, Cause, Check, Finding
from roofline_helpers.device.findings.detect import findings

__all__ = ["CAUSES", "Case", "Cause", "Check", "Finding", "findings"]
