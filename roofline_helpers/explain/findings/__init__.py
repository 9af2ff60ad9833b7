"""Causes of lost time, by name: a closed list, each with its evidence and its seconds.

A finding is made only where its seconds can be told: what its kernels take now minus what they
would take without the fault, never more than what was measured. Findings come sorted by them.

One file a family of causes: `moving` (copies, transposes, carries), `numbers` (data types, units,
shapes of products), `fusing` (what is written and read again), `waiting` (launches, the host,
other devices).
"""

from roofline_helpers.explain.findings.base import CAUSES, Case, Cause, Check, Finding, causes
from roofline_helpers.explain.findings.listed import findings

__all__ = ["CAUSES", "Case", "Cause", "Check", "Finding", "causes", "findings"]
