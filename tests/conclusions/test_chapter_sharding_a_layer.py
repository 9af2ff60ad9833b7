"""Conclusions of the chapter sharding-a-layer: each test would refute one."""

import roofline


def test_fsdp_over_hosts_needs_hardly_more_tokens_than_inside_one():
    hosts = roofline.network.topology("h100", 64)
    inside, across = (
        roofline.training.least_tokens(hosts, over) for over in (hosts.fast, hosts.axes)
    )
    assert inside < across < 1.2 * inside < roofline.training.least_tokens(hosts, hosts["nic"])
