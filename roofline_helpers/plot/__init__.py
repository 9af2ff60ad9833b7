"""Pictures: rooflines, kernels on them, fusion arrows, memory levels, traffic.

Every function takes ``ax=None`` and returns the Axes, drawn in SI units (FLOP/s against FLOP/byte;
only tick labels are scaled). Labels are placed each time that the figure is drawn, so that no two
texts overlap at any size. Artists carry a gid ("roof:memory", "ridge", "job:NAME", …) for checks to
find.
"""

from __future__ import annotations

from roofline_helpers.common.checks import needed

needed("drawing", "matplotlib")

from roofline_helpers.plot.charts import lines, traffic
from roofline_helpers.plot.labels import place_labels
from roofline_helpers.plot.rooflines import compare, fusion, hierarchical, roofline
from roofline_helpers.plot.style import PALETTE, use_style

__all__ = [
    "PALETTE",
    "use_style",
    "roofline",
    "compare",
    "fusion",
    "hierarchical",
    "lines",
    "traffic",
    "place_labels",
]
