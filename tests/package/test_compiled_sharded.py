"""Sharded programs as XLA compiles them for slices: each exchange once, as counted by hand."""

from __future__ import annotations

import math

import pytest
from compiled_reports import needs
from sharded_suite import SHARDED, mesh_of

from roofline_helpers import compiled, hardware
from roofline_helpers.compiled import targets
from roofline_helpers.compiled.links import Links


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


@pytest.mark.parametrize(
    ("chip", "layout", "mesh"),
    [
        ("v5p", "16x16x16", {"fsdp": 512, "tensor": 8}),  # 4 x 2: no axis is left whole
        ("v6e", "16x16", {"fsdp": 64, "tensor": 4}),
        ("v5p", "4x4x4", {"fsdp": 16, "tensor": 4}),  # an axis
        ("v5p", "4x4x8", {"fsdp": 4, "tensor": 32}),
    ],
)
def test_a_group_has_the_links_of_the_chips_that_it_is_placed_on(
    chip: str, layout: str, mesh: dict[str, int]
) -> None:
    needs(chip)
    group = targets.placed(hardware.chip(chip), layout, tuple(mesh.values()))[: mesh["tensor"]]
    extent = {name: len({device.coords[i] for device in group}) for i, name in enumerate("xyz")}
    laid = Links(chip, layout, mesh, math.prod(mesh.values()))._published["tensor"]
    sizes = dict.fromkeys("xyz", 1)
    for axis in laid:
        sizes[axis.links] *= axis.size
    assert sizes == extent
