"""What an all-reduce moves and sends."""

import numpy as np
import pytest

import roofline_helpers as rh
from roofline_helpers import BadValue
from roofline_helpers.work import all_reduce


def test_all_reduce():
    job = all_reduce(1024, 4, "fp32")
    assert job.traffic == {"hbm": 2 * 4096, "network": 2 * 3072}
    assert (job.flops, job.name, job.dtype) == (768, "all-reduce", "fp32")
    assert job.vector_flops == 768
    assert (dict(job.reads), dict(job.writes)) == (
        {"summand": 4096},
        {"sum": 4096},
    )
    assert all_reduce(8, 2).traffic == all_reduce(8, 2, "bf16").traffic
    assert all_reduce(8, 2, "int8").dtype == "int8"


def test_the_busiest_chip_of_an_uneven_ring_counts():
    assert all_reduce(10, 4).traffic["network"] == 32  # shards 3, 3, 2, 2
    assert all_reduce(1, 2).traffic["network"] == 4
    assert all_reduce(np.array([10, 1024]), 2).traffic["network"].tolist() == [20, 2048]
    with pytest.raises(BadValue, match="at least 2 chips, got 1"):
        all_reduce(1024, 1)


def test_a_network_ceiling_bounds_an_all_reduce():
    roof = rh.chip("v7x").roofline("bf16", network="ici")
    job = all_reduce(2**30, 4)
    assert roof.bound(job) == "network"
    assert roof.time(job) == pytest.approx(2 * 0.75 * 2**31 / 600e9)
