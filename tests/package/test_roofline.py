"""The model: ceilings, ridge, bound, times."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import pytest

import roofline_helpers as rh
from roofline_helpers import BadType, BadValue, Roofline, UnknownName, Work

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


def test_a_number_of_levels_means_main_memory():
    assert dict(PLAIN.levels) == {"hbm": 10.0}
    assert (PLAIN.peak, PLAIN.bandwidth, PLAIN.ridge) == (100.0, 10.0, 10.0)
    assert (PLAIN.vector, PLAIN.network) == (None, None)
    assert (PLAIN.name, PLAIN.origin) == ("roofline", "published")
    assert isinstance(Roofline(1, 2).peak, float)


def test_a_roofline_cannot_be_changed():
    with pytest.raises(AttributeError):
        PLAIN.peak = 1
    with pytest.raises(TypeError):
        PLAIN.levels["hbm"] = 1


def test_ridges_of_each_level_and_unit():
    assert FULL.ridge == FULL.ridge_at("hbm") == 100.0
    assert FULL.ridge_at("vmem") == 10.0
    assert FULL.ridge_at("HBM", "vector") == 5.0
    assert FULL.ridge_at("vmem", unit="vector") == 0.5
    with pytest.raises(UnknownName, match=r"unknown unit 'vector'.*Allowed: matrix"):
        PLAIN.ridge_at("hbm", "vector")


@pytest.mark.parametrize(
    ("chip", "dtype", "ridge"),
    [
        ("v7x", "bf16", 2307 / 7.38),
        ("v7x", "fp8", 4614 / 7.38),
        ("v6e", "bf16", 918 / 1.638),
        ("v5p", "bf16", 459 / 2.765),
        ("h100", "bf16", 989 / 3.35),
    ],
)
def test_published_ridges(chip, dtype, ridge):
    roof = rh.chip(chip).roofline(dtype)
    assert roof.ridge == pytest.approx(ridge)
    assert round(roof.ridge) in (313, 625, 560, 166, 295)


@pytest.mark.parametrize(
    ("intensity", "flops", "bound"),
    [(0, 0, "memory"), (5, 50, "memory"), (10, 100, "compute"), (11, 100, "compute")],
)
def test_attainable_and_bound(intensity, flops, bound):
    assert PLAIN.attainable(intensity) == flops
    assert PLAIN.bound(intensity) == bound
    assert type(PLAIN.attainable(intensity)) is float
    assert type(PLAIN.bound(intensity)) is str


def test_attainable_and_bound_of_arrays():
    intensities = np.array([[1, 10], [20, 0.5]])
    assert PLAIN.attainable(intensities).tolist() == [[10, 100], [100, 5]]
    assert PLAIN.bound(intensities).tolist() == [["memory", "compute"], ["compute", "memory"]]
    assert PLAIN.attainable([1, 2]).tolist() == [10, 20]


def test_the_ridge_itself_is_compute_bound_on_every_chip():
    for chip in rh.all_chips():
        for dtype in chip.matrix:
            roof = chip.roofline(dtype)
            assert roof.attainable(roof.ridge) == roof.peak
            assert roof.bound(roof.ridge) == "compute"


def test_intensity_at_an_inner_level():
    assert FULL.attainable(1) == 10
    assert FULL.attainable(1, "vmem") == FULL.attainable(1, level="VMEM") == 100
    assert FULL.bound(50) == "memory"
    assert FULL.bound(50, level="vmem") == "compute"


def test_the_lowest_of_several_levels_counts():
    assert FULL.attainable({"hbm": 50, "vmem": 2}) == 200
    assert FULL.attainable({"hbm": 10, "vmem": 2}) == 100
    assert FULL.attainable({"vmem": [1, 100], "hbm": 30}).tolist() == [100, 300]
    assert FULL.bound({"hbm": 100, "vmem": 2}) == "memory"
    assert FULL.bound({"hbm": 100, "vmem": 10}) == "compute"


def test_times_of_every_ceiling():
    kernel = job(matrix=2000, vector=200, hbm=50, vmem=900, network=6)
    assert FULL.times(kernel) == {"matrix": 2, "vector": 4, "hbm": 5, "vmem": 9, "network": 3}
    assert FULL.time(kernel) == 9
    assert FULL.time(kernel, overlap=False) == 23
    assert FULL.limit(kernel) == "vmem"
    assert FULL.bound(kernel) == "memory"
    assert FULL.attainable(kernel) == 2200 / 9


def test_without_a_vector_ceiling_vector_work_meets_the_peak():
    assert PLAIN.times(job(vector=300, hbm=20)) == {"vector": 3, "hbm": 2}


def test_without_a_network_ceiling_what_is_sent_is_free():
    assert PLAIN.times(job(matrix=100, hbm=20, network=10**6)) == {"matrix": 1, "hbm": 2}


def test_a_single_flop_counts():
    assert FULL.times(job(matrix=1, vector=1, hbm=2)) == {
        "matrix": 1e-3,
        "vector": 0.02,
        "hbm": 0.2,
    }


def test_intensities_of_any_size():
    assert PLAIN.attainable(10**40) == 100
    assert PLAIN.attainable(1e-40) == 1e-39


def test_a_copy_has_only_memory_time():
    copy = rh.work.elementwise(20, flops=0)
    assert PLAIN.times(copy) == {"hbm": 8}
    assert PLAIN.attainable(copy) == 0


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


def test_limits_of_an_array_of_kernels():
    kernel = job(matrix=np.array([[1, 9000], [1, 1]]), hbm=[[10, 1], [1, 1]], network=[[1], [50]])
    assert FULL.limit(kernel).tolist() == [["hbm", "matrix"], ["network", "network"]]
    assert FULL.bound(kernel).tolist() == [["memory", "compute"], ["network", "network"]]
    assert FULL.time(kernel).tolist() == [[1, 9], [25, 25]]
    assert FULL.attainable(kernel)[0, 1] == 1000


def test_kernels_one_after_another_add_up():
    assert PLAIN.time(job(matrix=300), job(hbm=20)) == 3 + 2
    assert PLAIN.time(job(matrix=300, hbm=10), job(hbm=20), overlap=False) == 3 + 1 + 2
    times = PLAIN.time(job(hbm=[10, 20]), job(hbm=30))
    assert times.tolist() == [4, 5]


def test_anything_with_the_four_counts_is_a_kernel():
    @dataclass
    class Measured:
        flops: float = 300
        matrix_flops: float = 300
        vector_flops: float = 0
        traffic: dict = field(default_factory=lambda: {"hbm": 20})

    assert PLAIN.time(Measured()) == 3
    assert PLAIN.attainable(Measured()) == 100


def test_a_kernel_without_a_common_level():
    roof = Roofline(1, {"sram": 1})
    with pytest.raises(BadValue, match=r"traffic at \['hbm'\].*levels \['sram'\]: none in common"):
        roof.time(job())


def test_two_kinds_of_efficiency():
    assert PLAIN.mfu(25) == 0.25
    assert PLAIN.mfu([25, 0]).tolist() == [0.25, 0]
    assert PLAIN.efficiency(25, 5) == 0.5
    assert PLAIN.efficiency(0, 5) == 0
    assert PLAIN.efficiency([25, 50], [5, 10]).tolist() == [0.5, 0.5]
    assert FULL.efficiency(25, 1, "vmem") == 0.25
    assert PLAIN.efficiency(25, job(matrix=50, hbm=10)) == 0.5
    with pytest.raises(BadValue, match="0 FLOP/s"):
        PLAIN.efficiency(1, [1, 0])


def test_h100_at_512_is_below_its_roof_too():
    roof = rh.chip("h100").roofline("bf16").without_floor()
    square = rh.work.matmul(512, 512, 512, "bf16")
    assert roof.attainable(square) / 1e12 == pytest.approx(571.7, abs=0.05)
    assert roof.efficiency(312e12, square) == pytest.approx(0.546, abs=0.0005)
    assert roof.mfu(312e12) == pytest.approx(0.315, abs=0.0005)
    assert roof.bound(square) == "memory"


def test_fp8_matmul_crosses_at_938_on_v7x():
    roof = rh.chip("v7x").roofline("fp8")
    sizes = np.array([937, 938])
    square = rh.work.matmul(sizes, sizes, sizes, "fp8")
    assert roof.bound(square.intensity).tolist() == ["memory", "compute"]
    assert roof.bound(square).tolist() == ["memory", "compute"]


def test_with_a_bf16_result_it_crosses_at_1251() -> None:
    sizes = np.array([1250, 1251])
    square = rh.work.matmul(sizes, sizes, sizes, "fp8", out="bf16")
    assert rh.chip("v7x").roofline("fp8").bound(square).tolist() == ["memory", "compute"]


def test_measured_ceilings_replace_only_what_is_given():
    measured = FULL.measured(peak=800, levels={"hbm": 8})
    assert (measured.peak, dict(measured.levels)) == (800, {"hbm": 8, "vmem": 100})
    assert (measured.vector, measured.network) == (50, 2)
    assert (measured.origin, measured.name) == ("measured", "toy, measured")
    assert dict(FULL.measured(levels=7).levels) == {"hbm": 7, "vmem": 100}
    outer = Roofline(1, {"dram": 4, "l2": 5})
    assert dict(outer.measured(levels=3).levels) == {"dram": 3, "l2": 5}
    assert FULL.measured(vector=40).vector == 40
    assert FULL.measured(network=1).network == 1
    assert FULL.origin == "published"


def test_measured_levels_are_levels_of_the_roofline():
    assert dict(FULL.measured(levels={"HBM": 8, " VMem": 9}).levels) == {"hbm": 8, "vmem": 9}
    with pytest.raises(UnknownName, match=r"memory level 'hmb' \(str\). Nearest: 'hbm'"):
        FULL.measured(levels={"hmb": 8})
    with pytest.raises(BadValue, match=r"name each once \(in any spelling\), got hbm, HBM"):
        FULL.measured(levels={"hbm": 1, "HBM": 2})


def test_levels_go_by_spelling_everywhere():
    roof = Roofline(1e12, {"hbm": 10, "V MEM": 20}, network=5)
    job = Work("w", {"x": 1}, {}, others={"VMEM": 40, "Network": 50})
    assert roof.times(job) == {"hbm": 0.1, "vmem": 2, "network": 10}
    foreign = SimpleNamespace(flops=1, matrix_flops=0, vector_flops=1, traffic={"HBM": 10})
    assert roof.times(foreign)["hbm"] == 1
    with pytest.raises(BadValue, match=r"levels must name each once .* got hbm, HBM"):
        Roofline(1, {"hbm": 1, "HBM": 2})
    with pytest.raises(BadValue, match="'network' is no memory level"):
        Roofline(1, {"hbm": 1, "Network": 2})
    with pytest.raises(BadType, match=r"a kernel .* is needed, got <class"):
        roof.time(Work)  # type: ignore[arg-type]


def test_unit_and_network_are_not_memory_levels():
    for taken in ("matrix", "vector", "network"):
        with pytest.raises(BadValue, match=taken):
            Roofline(1, {"hbm": 1, taken: 1})


def test_errors_are_also_the_builtin_ones():
    with pytest.raises(ValueError, match="intensity"):
        PLAIN.attainable(-1)
    with pytest.raises(TypeError, match="kernel"):
        PLAIN.time(3)
    with pytest.raises(KeyError, match="memory level"):
        PLAIN.ridge_at("l2")
    with pytest.raises(BadType, match="one number"):
        Roofline([1, 2], 1)


def test_a_kernel_on_both_units_stays_under_the_peak() -> None:
    roof = Roofline(100.0, 1.0, vector=10.0)
    both = Work("both", {"x": 1}, {}, matrix_flops=1000, vector_flops=50)
    assert roof.time(both) == 10.0
    assert roof.attainable(both) == 100.0


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


def test_the_floor_is_under_the_sum_of_parts_too():
    small = Work("small", {"x": 10}, {}, matrix_flops=1000)
    large = Work("large", {"x": 40}, {}, matrix_flops=1000)
    assert FLOORED.time(small, overlap=False) == 3.0
    assert FLOORED.time(large, overlap=False) == 5.0


def test_the_floor_says_nothing_about_an_intensity():
    assert FLOORED.attainable(50) == 500.0
    assert FLOORED.bound([50, 200]).tolist() == ["memory", "compute"]
    assert FLOORED.ridge == 100


def test_the_floor_is_off_when_asked():
    small = Work("small", {"x": 10}, {}, matrix_flops=1000)
    for roof in (FLOORED.without_floor(), Roofline(1000.0, 10.0, 50.0, floor=0)):
        assert roof.floor is None
        assert roof.time(small) == 1.0
        assert roof == Roofline(1000.0, 10.0, 50.0)
    with pytest.raises(BadValue, match="floor must be"):
        Roofline(1.0, 1.0, floor=-1)
    with pytest.raises(BadValue, match="'floor' is no memory level"):
        Roofline(1.0, {"floor": 1.0})


def test_sizes_below_the_floor_and_above_it():
    n = np.array([1, 10, 1000])
    jobs = Work("jobs", {"x": n}, {}, matrix_flops=n)
    assert FLOORED.time(jobs).tolist() == [3.0, 3.0, 100.0]
    assert FLOORED.bound(jobs).tolist() == ["latency", "latency", "memory"]


def test_a_floor_is_measured_like_any_ceiling():
    assert FLOORED.measured(peak=500).floor == 3.0
    assert FLOORED.measured(floor=4).floor == 4.0
    assert "floor 3 s" in repr(FLOORED)
