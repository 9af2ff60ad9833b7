"""What the picture of a program in time shows."""

from __future__ import annotations

import pytest
from plot_suite import shown

from roofline.xla.kernel import TimelineSpan as Span
from roofline.xla.picture import timeline

pytestmark = pytest.mark.usefixtures("own_style")

SPANS = [
    Span("a", "matmul of mlp.up, with its GELU", "compute", 0.0, 4e-3),
    Span("g", "all-gather of mlp.down", "network", 1e-3, 6e-3),
    Span("b", "matmul of mlp.down", "compute", 6e-3, 9e-3),
    Span("r", "all-reduce", "network", 9e-3, 10e-3),
]


def test_a_timeline_tells_hidden_from_exposed() -> None:
    axes = timeline(SPANS)
    bars = {
        bar.get_gid(): (round(bar.get_x(), 6), round(bar.get_x() + bar.get_width(), 6))
        for bar in axes.patches
    }
    assert bars == {
        "kernel:matmul of mlp.up, with its GELU": (0.0, 4e-3),
        "kernel:matmul of mlp.down": (6e-3, 9e-3),
        "hidden:all-gather of mlp.down": (1e-3, 4e-3),
        "exposed:all-gather of mlp.down": (4e-3, 6e-3),
        "exposed:all-reduce": (9e-3, 10e-3),
    }
    hatched = {bar.get_gid() for bar in axes.patches if bar.get_hatch()}
    assert hatched == {"exposed:all-gather of mlp.down", "exposed:all-reduce"}
    assert axes.get_xlabel() == "least time (ms)"
    assert [label.get_text() for label in axes.get_yticklabels()] == ["kernels", "network"]
    assert "matmul" in shown(axes, "piece")
