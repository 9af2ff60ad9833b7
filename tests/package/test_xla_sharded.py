"""Sharded programs as XLA compiles them for slices: each exchange once, as counted by hand."""

import pytest
from compiled_reports import needs
from sharded_suite import SHARDED, mesh_of

from roofline import network, xla
from roofline_helpers import BadValue


@pytest.mark.parametrize("name", SHARDED)
def test_exchanges_are_those_counted_by_hand(name):
    case = SHARDED[name]
    needs(case.chip)
    fn, args = case.make(mesh_of(case.mesh))
    report = xla.analyze(fn, *args, chip=case.chip, topology=case.layout)
    collectives = [exchange.collective for exchange in report.exchanges]
    told = [(e.kind, e.bytes_in, e.bytes_out, e.axis, e.launches) for e in collectives]
    assert sorted(told, key=str) == sorted(case.hand, key=str)
    assert dict(report.mesh) == case.mesh
    assert len(report.exchanges) == len(case.hand)
    for exchange in report.exchanges:
        assert 0 <= exchange.exposed <= exchange.seconds * 1.0001
        assert exchange.seconds > 0
    assert report.time_at_roof >= sum(exchange.exposed for exchange in report.exchanges) * 0.9999


def test_between_slices_hosts_exchange_a_slice_s_share_over_their_network():
    case = SHARDED["across slices, v6e"]
    needs(case.chip)
    fn, args = case.make(mesh_of(case.mesh))
    report = xla.analyze(fn, *args, chip=case.chip, topology=case.layout)
    rate = network.topology("v6e", "2x4", slices=2)["dcn"][0].protocols[0].rate
    crossing = [exchange for exchange in report.exchanges if exchange.collective.axis == "slice"]
    assert len(crossing) == 2
    for exchange in crossing:
        assert exchange.seconds == pytest.approx(exchange.collective.link_bytes / rate, rel=1e-3)
    assert report.devices == 16
    with pytest.raises(BadValue, match=r"two\*2x4"):
        xla.analyze(fn, *args, chip=case.chip, topology="two*2x4")
