"""A kernel on a roofline: what one launch does, and the seconds of all."""

from __future__ import annotations

from dataclasses import dataclass, field

from roofline_helpers import Roofline, Work
from roofline_helpers.roofline import Kernel

ROOF = Roofline(peak=1000.0, levels={"hbm": 10.0, "vmem": 100.0}, vector=50.0, network=2.0)


@dataclass(frozen=True)
class Counts:
    """The least that can be held against a roofline."""

    matrix_flops: float = 0
    vector_flops: float = 0
    traffic: dict[str, float] = field(default_factory=lambda: {"hbm": 0.0})


def test_seconds_are_those_of_all_launches() -> None:
    job = Work("job", {"x": 40}, {}, matrix_flops=3000, vector_flops=100, others={"network": 2})
    kernel = Kernel(job, ROOF, 5)
    assert kernel.times == {"matrix": 15.0, "vector": 10.0, "hbm": 20.0, "network": 5.0}
    assert kernel.roof_seconds == 5 * ROOF.time(job) == 20.0
    assert (kernel.limit, kernel.bound) == ("hbm", "memory")
    assert Kernel(job, ROOF).roof_seconds == ROOF.time(job)


def test_each_ceiling_bounds_what_it_is_the_slowest_part_of() -> None:
    bounds = {
        ("matrix", "compute"): Counts(matrix_flops=1e6),
        ("vector", "compute"): Counts(vector_flops=1e6),
        ("hbm", "memory"): Counts(traffic={"hbm": 1e6}),
        ("vmem", "memory"): Counts(traffic={"VMEM": 1e6}),
        ("network", "network"): Counts(traffic={"hbm": 0, "network": 1e6}),
    }
    kernels = {wanted: Kernel(counts, ROOF) for wanted, counts in bounds.items()}
    assert {(kernel.limit, kernel.bound) for kernel in kernels.values()} == set(bounds)
    assert all((k.limit, k.bound) == wanted for wanted, k in kernels.items())
    assert all(list(k.times) == [wanted[0]] for wanted, k in kernels.items())
