"""Pictures: rooflines, kernels on them, fusion arrows, memory levels, heatmaps, traffic,
timelines.

Every function takes ``ax=None``, draws in SI units (FLOP/s against FLOP/byte; only the tick labels
are scaled), returns the Axes and never calls ``show``. Names find their places each time that the
figure is drawn, and not before, so that no two texts meet at any size.
Artists carry a gid ("roof:memory", "roof:compute", "ridge", "job:NAME", …) for checks to find.
"""

from __future__ import annotations

from roofline_helpers._checks import needed

needed("drawing", "matplotlib", "seaborn")

from roofline_helpers.plot.charts import heatmap, lines, traffic
from roofline_helpers.plot.inputs import Job, Jobs, Kernels
from roofline_helpers.plot.labels import place_labels, text_overlaps, visible_texts
from roofline_helpers.plot.rooflines import compare, fusion, hierarchical, roofline
from roofline_helpers.plot.schedules import timeline
from roofline_helpers.plot.style import MARKERS, PALETTE, SIZE, use_style

__all__ = [
    "PALETTE",
    "MARKERS",
    "SIZE",
    "Job",
    "Jobs",
    "Kernels",
    "use_style",
    "roofline",
    "compare",
    "fusion",
    "hierarchical",
    "heatmap",
    "lines",
    "traffic",
    "timeline",
    "place_labels",
    "text_overlaps",
    "visible_texts",
]
