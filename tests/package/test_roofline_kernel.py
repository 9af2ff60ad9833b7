"""A kernel on a roofline: what one launch does, and the seconds of all."""

from __future__ import annotations

from roofline_helpers import Roofline, Work
from roofline_helpers.roofline import Kernel

ROOF = Roofline(peak=1000.0, levels={"hbm": 10.0, "vmem": 100.0}, vector=50.0, network=2.0)


def test_seconds_are_those_of_all_launches() -> None:
    job = Work("job", {"x": 40}, {}, matrix_flops=3000, vector_flops=100, others={"network": 2})
    kernel = Kernel(job, ROOF, 5)
    assert kernel.times == {"matrix": 15.0, "vector": 10.0, "hbm": 20.0, "network": 5.0}
    assert kernel.roof_seconds == 5 * ROOF.time(job) == 20.0
    assert (kernel.limit, kernel.bound) == ("hbm", "memory")
    assert Kernel(job, ROOF).roof_seconds == ROOF.time(job)
