"""The model: ceilings, ridge, bound, times."""

import numpy as np
import pytest

from roofline_helpers import BadValue, Roofline, UnknownName, Work

PLAIN = Roofline(peak=100.0, levels=10.0)
FULL = Roofline(
    peak=1000.0,
    levels={"hbm": 10.0, "vmem": 100.0},
    vector=50.0,
    network=2.0,
    name="toy",
)


def job(matrix=0, vector=0, hbm=1, **others):
    return Work("job", {"x": hbm}, {}, matrix_flops=matrix, vector_flops=vector, others=others)


def test_ridges_of_each_level_and_unit():
    assert FULL.ridge == FULL.ridge_at("hbm") == 100.0
    assert FULL.ridge_at("vmem") == 10.0
    assert FULL.ridge_at("HBM", "vector") == 5.0
    assert FULL.ridge_at("vmem", unit="vector") == 0.5
    with pytest.raises(UnknownName, match=r"unknown unit 'vector'.*Allowed: matrix"):
        PLAIN.ridge_at("hbm", "vector")


def test_times_of_every_ceiling():
    kernel = job(matrix=2000, vector=200, hbm=50, vmem=900, network=6)
    assert FULL.times(kernel) == {
        "matrix": 2,
        "vector": 4,
        "hbm": 5,
        "vmem": 9,
        "network": 3,
    }
    assert FULL.time(kernel) == 9
    assert FULL.time(kernel, overlap=False) == 23
    assert FULL.limit(kernel) == "vmem"
    assert FULL.bound(kernel) == "memory"
    assert FULL.attainable(kernel) == 2200 / 9
    # without a vector unit's ceiling, its FLOPs may run at the matrix unit's: 200 at 100 a second
    assert PLAIN.times(job(vector=200, hbm=5)) == {"vector": 2, "hbm": 0.5}


@pytest.mark.parametrize(
    ("kernel", "limit", "bound"),
    [
        (job(matrix=9000, hbm=1), "matrix", "compute"),
        (job(vector=9000, hbm=1), "vector", "compute"),
        (job(matrix=1, hbm=1000), "hbm", "memory"),
        (job(matrix=1, hbm=1, network=999), "network", "network"),
        (job(matrix=1000, hbm=10), "matrix", "compute"),  # the ridge itself
    ],
)
def test_the_longest_time_names_the_limit(kernel, limit, bound):
    assert FULL.limit(kernel) == limit
    assert FULL.bound(kernel) == bound
    assert type(FULL.limit(kernel)) is type(FULL.bound(kernel)) is str


def test_two_kinds_of_efficiency():
    assert PLAIN.mfu(25) == 0.25
    assert PLAIN.mfu([25, 0]).tolist() == [0.25, 0]
    assert PLAIN.efficiency(25, 5) == 0.5
    assert PLAIN.efficiency(0, 5) == 0
    assert PLAIN.efficiency([25, 50], [5, 10]).tolist() == [0.5, 0.5]
    assert PLAIN.efficiency(25, job(matrix=50, hbm=10)) == 0.5
    with pytest.raises(BadValue, match="0 FLOP/s"):
        PLAIN.efficiency(1, [1, 0])


def test_measured_ceilings_replace_only_what_is_given():
    measured = FULL.measured(peak=800, levels={"hbm": 8})
    assert (measured.peak, dict(measured.levels)) == (800, {"hbm": 8, "vmem": 100})
    assert (measured.vector, measured.network) == (50, 2)
    assert measured.name == "toy, measured"


# --- the floor ------------------------------------------------------------------------------------

FLOORED = Roofline(peak=1000.0, levels=10.0, vector=50.0, floor=3.0)


def test_no_launch_costs_less_than_the_floor():
    small = Work("small", {"x": 10}, {}, matrix_flops=1000)
    large = Work("large", {"x": 40}, {}, matrix_flops=1000)
    assert FLOORED.times(small) == {"matrix": 1.0, "hbm": 1.0, "floor": 3.0}
    assert (FLOORED.time(small), FLOORED.time(large)) == (3.0, 4.0)  # the longest, no sum
    assert FLOORED.time(small, large, small) == 10.0
    assert (FLOORED.limit(small), FLOORED.bound(small)) == ("floor", "latency")
    assert (FLOORED.limit(large), FLOORED.bound(large)) == ("hbm", "memory")
    assert FLOORED.attainable(small) == pytest.approx(1000 / 3)


def test_the_floor_is_off_when_asked():
    small = Work("small", {"x": 10}, {}, matrix_flops=1000)
    for roof in (FLOORED.without_floor(), Roofline(1000.0, 10.0, 50.0, floor=0)):
        assert roof.floor is None
        assert roof.time(small) == 1.0
        assert roof == Roofline(1000.0, 10.0, 50.0)


def test_sizes_below_the_floor_and_above_it():
    n = np.array([1, 10, 1000])
    jobs = Work("jobs", {"x": n}, {}, matrix_flops=n)
    assert FLOORED.time(jobs).tolist() == [3.0, 3.0, 100.0]
    assert FLOORED.bound(jobs).tolist() == ["latency", "latency", "memory"]
