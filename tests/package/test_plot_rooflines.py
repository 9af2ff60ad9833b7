"""The numbers that rooflines draw are the model's."""

import pytest
from plot_suite import (
    CHAIN,
    DEEP,
    FUSED,
    HALVES,
    JOBS,
    ROOF,
    ROOFS,
    TILED,
    at,
    by_gid,
    real,
    shown,
)

import roofline_helpers as rh
from roofline_helpers import BadType, BadValue, plot

pytestmark = pytest.mark.usefixtures("own_style")


@pytest.mark.parametrize("name", ["v7x", "h100", "orin-nx"])
def test_roofline_draws_the_model(name):
    roof = real(name)
    axes = plot.roofline(roof, JOBS)
    low, high = axes.get_xlim()
    memory = by_gid(axes, "roof:memory").get_xydata()
    compute = by_gid(axes, "roof:compute").get_xydata()
    assert memory.tolist() == [
        [low, roof.attainable(low)],
        [roof.ridge, roof.peak],
    ]
    assert compute.tolist() == [
        [roof.ridge, roof.peak],
        [high, roof.peak],
    ]
    assert at(axes, "ridge") == (roof.ridge, roof.peak)
    for label, job in JOBS.items():
        assert at(axes, f"job:{label}") == (job.intensity, roof.attainable(job))
    drawn = [line.get_ydata()[0] for line in axes.lines if line.get_gid() == "roof:vector"]
    assert drawn == ([roof.vector] if roof.vector else [])


def test_achieved_points_hang_below_the_roof():
    axes = plot.roofline(ROOF, {"a": 10, "b": 1000}, achieved={"a": 4e12})
    assert at(axes, "job:a") == (10.0, 1e13)
    assert at(axes, "achieved:a") == (10.0, 4e12)
    assert by_gid(axes, "gap:a").get_xydata().tolist() == [
        [10, 4e12],
        [10, 1e13],
    ]
    assert "a, 40%" in shown(axes)
    assert axes.get_ylabel() == "attainable, achieved (TFLOP/s)"
    assert "b" in shown(axes)


def test_compare_draws_each_model():
    axes = plot.compare(ROOFS, JOBS)
    bounds = {by_gid(plot.roofline(ROOF), f"roof:{b}").get_color() for b in ("memory", "compute")}
    bounds |= set(plot.PALETTE["series"][:2])  # nearly the same blue and orange
    few = {by_gid(axes, f"roof:{roof.name}").get_color() for roof in ROOFS[:5]}
    assert not few & bounds
    for roof in ROOFS:
        line = by_gid(axes, f"roof:{roof.name}").get_xydata()
        assert line[1].tolist() == [roof.ridge, roof.peak]
        assert line[0][1] == pytest.approx(roof.attainable(line[0][0]))
        for label, job in JOBS.items():
            spot = at(axes, f"job:{label}:{roof.name}")
            assert spot == (job.intensity, roof.attainable(job))
    for label, job in JOBS.items():
        assert set(by_gid(axes, f"guide:{label}").get_xdata()) == {job.intensity}
    assert axes.get_ylabel() == "attainable, bf16 (TFLOP/s)"
    assert {"TPU v7x", "H100 SXM", *JOBS} <= set(shown(axes))


def test_fusion_draws_the_ratio_of_the_bytes():
    roof = real("h100")
    steps = {"2 kernels": rh.total(*HALVES)}
    axes = plot.fusion(roof, ("4 kernels", CHAIN), FUSED, steps=steps)
    before = rh.total(*CHAIN)
    assert at(axes, "job:4 kernels") == (before.intensity, roof.attainable(before))
    assert at(axes, "job:after") == (FUSED.intensity, roof.attainable(FUSED))
    assert at(axes, "job:2 kernels") == (steps["2 kernels"].intensity, pytest.approx(
        roof.attainable(steps["2 kernels"])))  # fmt: skip
    assert f"bytes ÷ {before.bytes / FUSED.bytes:.1f}" in shown(axes)
    arrow = by_gid(axes, "arrow").get_xydata()
    assert arrow[0].tolist() == [before.intensity, roof.attainable(before)]
    assert arrow[-1].tolist() == [FUSED.intensity, roof.attainable(FUSED)]
    assert "bytes × 2.5" in shown(plot.fusion(roof, FUSED, CHAIN))


PAPER = plot.PALETTE["paper"]


def test_hierarchical_draws_each_level_at_its_own_intensity():
    axes = plot.hierarchical(DEEP, TILED)
    bandwidths = {**DEEP.levels, "network": DEEP.network}
    for level, bandwidth in bandwidths.items():
        line = by_gid(axes, f"roof:{level}").get_xydata()
        assert line[:, 1] == pytest.approx(bandwidth * line[:, 0])
        assert line[1].tolist() == [DEEP.peak / bandwidth, DEEP.peak]
    for label, job in TILED.items():
        rates = {}
        for level in job.traffic:
            x, rates[level] = at(axes, f"job:{label}:{level}")
            assert x == job.intensity_at(level)
            assert rates[level] <= min(DEEP.peak, bandwidths[level] * x) * (1 + 1e-9)
            filled = by_gid(axes, f"job:{label}:{level}").get_markerfacecolor() != PAPER
            assert filled == (level == DEEP.limit(job))
        assert list(rates.values()) == pytest.approx([DEEP.attainable(job)] * len(rates))
        limit = DEEP.limit(job)
        if limit in rates:
            assert rates[limit] == pytest.approx(bandwidths[limit] * job.intensity_at(limit))
    assert DEEP.limit(TILED["layernorm"]) == "hbm"
    assert DEEP.limit(TILED["matmul"]) not in TILED["matmul"].traffic


# --- bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: plot.roofline("v7x"), BadType, "a Roofline is needed here, got 'v7x'"),
        (lambda: plot.roofline(ROOF, {"a": "b"}), BadType, "intensity of a"),
        (lambda: plot.roofline(ROOF, {"a": rh.work.elementwise(9, flops=0)}), BadValue, "no FLOPs"),
        (lambda: plot.compare([]), BadValue, "at least one Roofline"),
    ],
)
def test_bad_input_gets_a_clear_error(call, error, message):
    with pytest.raises(error, match=message):
        call()
