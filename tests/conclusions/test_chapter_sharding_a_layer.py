"""Conclusions of the chapter sharding-a-layer: each test would refute one."""

import dataclasses

import pytest

import roofline
import roofline_helpers as rh


def test_fsdp_over_hosts_needs_hardly_more_tokens_than_inside_one():
    hosts = roofline.network.topology("h100", 64)
    inside, across = (
        roofline.training.least_tokens(hosts, over) for over in (hosts.fast, hosts.axes)
    )
    assert inside < across < 1.2 * inside < roofline.training.least_tokens(hosts, hosts["nic"])


def test_a_gate_allows_one_and_a_half_times_the_chips():
    """Three matmuls in place of two, and the same exchange."""
    model = rh.models.model("llama-3-70b")
    place = roofline.network.topology("v6e", "2x4")
    gated, plain, none = (
        roofline.serving.step(each, place, {"tensor": 8}, phase="prefill", context=4096)
        for each in (
            model,
            dataclasses.replace(model, gated=False),
            dataclasses.replace(model, gated=False, d_ff=8),
        )
    )
    flops = [sum(kernel.work.flops for kernel in step.kernels) for step in (gated, plain, none)]
    assert gated.comms == plain.comms
    assert flops[0] - flops[2] == pytest.approx(1.5 * (flops[1] - flops[2]), rel=0.01)
