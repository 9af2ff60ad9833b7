"""The model: ceilings, ridge, bound, times."""

from types import SimpleNamespace

import numpy as np
import pytest

from roofline_helpers import BadType, BadValue, Roofline, UnknownName, Work
from roofline_helpers.roofline import Kernel

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
    assert FULL.attainable(job(matrix=900, vector=45, hbm=1)) == 1000  # not the 1050 of both units
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


def test_many_at_once():
    intensities = [0, 0.5, 9.99, 10, 40]
    assert PLAIN.attainable(intensities).tolist() == [0, 5, 99.9, 100, 100]
    assert PLAIN.bound(intensities).tolist() == ["memory"] * 3 + ["compute"] * 2
    assert (PLAIN.attainable(0.5), PLAIN.bound(9.99), PLAIN.bound(10)) == (5, "memory", "compute")
    jobs = job(matrix=np.array([10, 3000, 20]), vector=[45, 1, 2], hbm=[8, 9, 20])
    assert FULL.time(jobs).tolist() == [0.9, 3, 2]
    assert FULL.time(jobs, jobs, overlap=False).tolist() == pytest.approx([3.42, 7.84, 4.12])
    assert FULL.limit(jobs).tolist() == ["vector", "matrix", "hbm"]
    assert FULL.bound(jobs).tolist() == ["compute", "compute", "memory"]


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
    levels = {"hbm": 10, "vmem": 100}
    for given, peak, by_level, vector in (
        ({"peak": 800}, 800, levels, 50),
        ({"levels": {"VMEM": 70}}, 1000, {"hbm": 10, "vmem": 70}, 50),
        ({"levels": 7}, 1000, {"hbm": 7, "vmem": 100}, 50),  # of the outermost
        ({"vector": 40}, 1000, levels, 40),
    ):
        wanted = Roofline(peak, by_level, vector, network=2, name="toy, measured")
        assert FULL.measured(**given) == wanted
    with pytest.raises(BadType, match="at least one of peak, levels, vector"):
        FULL.measured()


def test_a_roofline_shows_its_ceilings_and_ridges():
    roof = Roofline(2e12, {"hbm": 5e9, "L2": 40e9}, 3e11, 6e9, 2e-6, "toy")
    assert repr(roof) == (
        "<toy: peak 2 TFLOP/s, vector 0.3 TFLOP/s, hbm 5 GB/s, l2 40 GB/s, network 6 GB/s, "
        "floor 2 µs, ridge 400 FLOP/byte, vector ridge 60 FLOP/byte>"
    )
    assert repr(Roofline(2e12, 5e9)) == (
        "<roofline: peak 2 TFLOP/s, memory 5 GB/s, ridge 400 FLOP/byte>"
    )
    assert roof.slopes == {"hbm": 5e9, "l2": 40e9, "network": 6e9}


@pytest.mark.parametrize("level", ["Matrix", "vector", "net-work", "floor"])
def test_what_has_an_argument_is_no_level(level):
    with pytest.raises(BadValue, match="an argument of its own"):
        Roofline(1, {"hbm": 1, level: 2})


def test_what_costs_nothing_has_no_bound_and_what_is_no_count_no_time():
    free = SimpleNamespace(matrix_flops=0, vector_flops=0, traffic={"hbm": 0})
    assert (PLAIN.times(free), PLAIN.limit(free), PLAIN.bound(free)) == ({}, None, None)
    assert (Kernel(free, PLAIN).limit, Kernel(free, PLAIN).roof_seconds) == (None, 0.0)
    assert FLOORED.bound(free) == "latency"
    some = job(matrix=np.array([0, 200]), hbm=10)  # of several only some do nothing
    assert PLAIN.times(some)["matrix"].tolist() == [0, 2]
    for half in ("matrix_flops", "vector_flops"):
        with pytest.raises(BadType, match="a kernel"):
            PLAIN.time(SimpleNamespace(**{half: 1}))
    with pytest.raises(BadType, match="at least one kernel"):
        PLAIN.time()


# --- the floor ------------------------------------------------------------------------------------

FLOORED = Roofline(peak=1000.0, levels=10.0, vector=50.0, floor=3.0)


def test_no_launch_costs_less_than_the_floor():
    small = Work("small", {"x": 10}, {}, matrix_flops=1000)
    large = Work("large", {"x": 40}, {}, matrix_flops=1000)
    assert FLOORED.times(small) == {"matrix": 1.0, "hbm": 1.0, "floor": 3.0}
    assert (FLOORED.time(small), FLOORED.time(large)) == (3.0, 4.0)  # the longest, no sum
    assert FLOORED.time(small, large, small) == 10.0
    assert [FLOORED.time(x, overlap=False) for x in (small, large)] == [3.0, 5.0]
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
