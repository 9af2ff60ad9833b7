"""A kernel on a roofline: what one launch does, and the seconds of all."""

from roofline_helpers import Roofline, Work
from roofline_helpers.roofline import FLOOR, NETWORK, UNITS, Kernel, bound_of

ROOF = Roofline(peak=1000.0, levels={"hbm": 10.0, "vmem": 100.0}, vector=50.0, network=2.0)


def test_seconds_are_those_of_all_launches():
    job = Work("job", {"x": 40}, {}, matrix_flops=3000, vector_flops=100, others={"network": 2})
    kernel = Kernel(job, ROOF, 5)
    assert kernel.times == {"matrix": 15.0, "vector": 10.0, "hbm": 20.0, "network": 5.0}
    assert kernel.roof_seconds == 5 * ROOF.time(job) == 20.0
    assert (kernel.limit, kernel.bound) == ("hbm", "memory")
    assert Kernel(job, ROOF).roof_seconds == ROOF.time(job)
    unknown = Kernel(job)
    assert (unknown.times, unknown.limit) == ({}, None)
    assert (unknown.roof_seconds, unknown.bound) == (None, None)
    floored = Kernel(job, Roofline(peak=1e9, levels=100.0, floor=3.0), 5)
    assert (floored.times["floor"], floored.roof_seconds, floored.bound) == (15, 15, "latency")


def test_the_bound_names_every_value_that_it_can_have():
    tiny = Kernel(Work("copy", {"x": 8}, {"y": 8}), Roofline(1e12, 1e12, floor=1e-6))
    assert tiny.bound == "latency"
    words = {bound_of(limit) for limit in (*UNITS, "hbm", NETWORK, FLOOR)}
    documented = Kernel.bound.__doc__ or ""
    assert {word for word in words if f'"{word}"' in documented} == words
