"""Sharded programs as XLA compiles them for slices: each exchange once, as counted by hand."""

from __future__ import annotations

import math

import pytest
from compiled_reports import needs
from sharded_suite import SHARDED, mesh_of

from roofline_helpers import BadValue, chips, network, xla
from roofline_helpers.xla.kernel import Links
from roofline_helpers.xla.targets import jax_version, mesh_devices


@pytest.mark.parametrize("name", SHARDED)
def test_exchanges_are_those_counted_by_hand(name: str) -> None:
    case = SHARDED[name]
    needs(case.chip)
    if jax_version() < (0, 8):
        pytest.skip("NOT TESTED: this JAX's shard_map is written otherwise")
    fn, args = case.make(mesh_of(case.mesh))
    report = xla.analyze(fn, *args, chip=case.chip, topology=case.layout)
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
    group = mesh_devices(chips.chip(chip), layout, tuple(mesh.values()))[: mesh["tensor"]]
    extent = {name: len({device.coords[i] for device in group}) for i, name in enumerate("xyz")}
    laid = Links(chip, layout, mesh, math.prod(mesh.values()))._published["tensor"]
    sizes = dict.fromkeys("xyz", 1)
    for axis in laid:
        sizes[axis.links] *= axis.size
    assert sizes == extent


def test_between_slices_hosts_exchange_a_slice_s_share_over_their_network() -> None:
    case = SHARDED["across slices, v6e"]
    needs(case.chip)
    fn, args = case.make(mesh_of(case.mesh))
    report = xla.analyze(fn, *args, chip=case.chip, topology=case.layout)
    rate = network.topology("v6e", "2x4", slices=2)["dcn"][0].protocols[0].rate
    crossing = [each for each in report.exchanges if each.collective.axis == "slice"]
    assert len(crossing) == 2
    for each in crossing:
        assert each.seconds == pytest.approx(each.collective.link_bytes / rate, rel=1e-3)
    assert report.devices == 16
    with pytest.raises(BadValue, match=r"as '4\*16x16', got 'two\*2x4'"):
        xla.analyze(fn, *args, chip=case.chip, topology="two*2x4")
