"""Causes of lost time, by name: a closed list, each with its evidence and an estimate.

The estimate is the time of a cause's kernels less their time without it. A gain is promised only as
a range that pairs of programs had. There is always a finding: if no cause explains the longest
kernel, one says how near it is to its roof.

What is in vain is one of nine kinds, which the program's dataflow shows (`flow`), whatever made it:
`vain` (computed and not used, zeros), `moved` (moved and not changed, repeated in memory), `again`
(done again, kept for later), `wide` (wider than asked), `small` (small or waiting, one at a time).
No dataflow shows `kernels` (units, tiles, blocks), `idle` (the host) and `devices` (one is late).
`detect` has their order.
"""

from roofline.diagnosis.findings.causes import CAUSES, Case, Finding
from roofline.diagnosis.findings.detect import findings

__all__ = ["CAUSES", "Case", "Finding", "findings"]
