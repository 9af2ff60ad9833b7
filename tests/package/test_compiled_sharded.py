"""Sharded programs as XLA compiles them for slices: each exchange once, as counted by hand."""

from __future__ import annotations

import pytest
from compiled_reports import needs
from sharded_suite import SHARDED, mesh_of

from roofline_helpers import compiled
from roofline_helpers.compiled import targets


@pytest.mark.parametrize("name", SHARDED)
def test_exchanges_are_those_counted_by_hand(name: str) -> None:
    case = SHARDED[name]
    needs(case.chip)
    if targets.jax_version() < (0, 8):
        pytest.skip("NOT TESTED: this JAX's shard_map is written otherwise")
    fn, args = case.make(mesh_of(case.mesh))
    report = compiled.analyze(fn, *args, chip=case.chip)
    told = [(e.kind, e.bytes_in, e.bytes_out, e.axis, e.launches) for e in report.collectives]
    assert sorted(told, key=str) == sorted(case.hand, key=str)
    assert dict(report.mesh) == case.mesh
    assert len(report.exchanges) == len(case.hand)
    for exchange in report.exchanges:
        assert 0 <= exchange.exposed <= exchange.seconds * 1.0001
        assert exchange.seconds > 0
    assert report.time_at_roof is not None
    assert report.time_at_roof >= sum(exchange.exposed for exchange in report.exchanges) * 0.9999
