"""The numbers that lines and traffic draw."""

import itertools

import numpy as np
import pytest
from plot_suite import CHAIN, FUSED, SQUARE, N, by_gid, shown

from roofline_helpers import BadType, BadValue, plot

pytestmark = pytest.mark.usefixtures("own_style")


def test_lines_draw_the_values_and_name_them():
    axes = plot.lines(N, {"square": SQUARE}, hlines={"ridge": 300}, xlabel="N", ylabel="AI")
    assert by_gid(axes, "series:square").get_xydata() == pytest.approx(np.stack([N, SQUARE], 1))
    assert set(by_gid(axes, "hline:ridge").get_ydata()) == {300.0}
    assert shown(axes, "margin") == ["square", "ridge"]
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("N", "AI")


@pytest.mark.parametrize(
    ("x", "series", "error"),
    [
        ([1, 2], {"a": [1, 2, 3]}, BadValue),
        ([1, 2], {"a": [1, -2]}, BadValue),
        ([1, 2], [1, 2], BadType),
    ],
)
def test_lines_refuse(x, series, error):
    with pytest.raises(error):
        plot.lines(x, series)


def test_traffic_draws_every_byte_once():
    axes = plot.traffic({"4 kernels": CHAIN, "1 kernel": FUSED.reading(x=2)})
    for name, jobs in (
        ("4 kernels", CHAIN),
        ("1 kernel", [FUSED.reading(x=2)]),
    ):
        bars = [p for p in axes.patches if (p.get_gid() or "").startswith(f"bytes:{name}:")]
        assert sum(bar.get_width() for bar in bars) == sum(job.bytes for job in jobs)
        for direction, hatched in (
            ("read_bytes", False),
            ("written_bytes", True),
        ):
            drawn = sum(bar.get_width() for bar in bars if bool(bar.get_hatch()) == hatched)
            assert drawn == sum(getattr(job, direction) for job in jobs)
        ends = sorted((bar.get_x(), bar.get_x() + bar.get_width()) for bar in bars)
        assert all(a[1] == pytest.approx(b[0]) for a, b in itertools.pairwise(ends))
    assert "168 MB" in shown(axes)
