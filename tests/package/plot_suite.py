"""What the tests of pictures share: rooflines, kernels, a picture of every sort, its parts."""

import matplotlib as mpl
import numpy as np
from matplotlib.axis import Axis
from matplotlib.text import Text

import roofline_helpers as rh
from roofline_helpers import Roofline, plot
from roofline_helpers.plot import labels
from roofline_helpers.plot.style import SIZE

mpl.use("Agg")

SIZES = {"page": SIZE, "phone": (3.6, 3.4)}

ROOF = Roofline(100e12, 1e12, vector=5e12, name="toy bf16")
DEEP = Roofline(
    100e12, {"hbm": 1e12, "vmem": 8e12, "l1": 40e12}, vector=5e12, network=50e9, name="deep"
)
JOBS = {
    "LayerNorm": rh.work.layernorm(2048, 8192),
    "Q·Kᵀ": rh.work.attention_scores(1, 2048, heads=32),
    "600² matmul": rh.work.matmul(600, 600, 600),
    "FFN up-projection": rh.work.matmul(2048, 32768, 8192),
    "decode matmul": rh.work.matmul(8, 8192, 8192),
    "GELU": rh.work.gelu(2048 * 8192),
    "softmax": rh.work.softmax(32 * 2048, 2048),
    "residual add": rh.work.add(2048 * 8192),
}
TWINS = {f"matmul {n}": rh.work.matmul(n, n, n) for n in range(600, 608)}
CHAIN = [
    rh.work.layernorm(2048, 4096, x="x", y="a"),
    rh.work.gelu(2048 * 4096, x="a", y="b"),
    rh.work.dropout(2048 * 4096, x="b", y="c"),
    rh.work.add(2048 * 4096, x="c", other="residual", y="y"),
]
FUSED = rh.fuse(*CHAIN)
HALVES = [rh.fuse(*CHAIN[:2]), rh.fuse(*CHAIN[2:])]
TILED = {
    "matmul": rh.work.matmul(4096, 4096, 4096).with_traffic(vmem=5e9, l1=2e10, network=3e7),
    "layernorm": rh.work.layernorm(2048, 4096).with_traffic(vmem=1e8, l1=3e8),
}
# As many as one picture holds: the catalogue has more
CHIPS = [
    *("v4", "v5e", "v5p", "v6e", "v7x", "t4", "l4", "a100-40gb", "a100-80gb", "h100", "h200"),
    *("b200", "orin-nx", "mi300x"),
]
ROOFS = [rh.chip(key).roofline() for key in CHIPS if "bf16" in rh.chip(key).matrix]
N = np.geomspace(32, 32768, 60).round()
SQUARE = rh.work.matmul(N, N, N).intensity


def real(name):
    return rh.chip(name).roofline()


PICTURES = {
    "roofline, one job": lambda ax: plot.roofline(ROOF, {"LayerNorm": JOBS["LayerNorm"]}, ax=ax),
    "roofline, jobs": lambda ax: plot.roofline(real("v7x"), JOBS, ax=ax),
    "roofline, jobs, vector": lambda ax: plot.roofline(real("h100"), JOBS, vector=True, ax=ax),
    "roofline, twins": lambda ax: plot.roofline(real("v7x"), TWINS, ax=ax),
    "roofline, achieved": lambda ax: plot.roofline(
        ROOF, JOBS, achieved={"FFN up-projection": 60e12, "LayerNorm": 1e12, "GELU": 3e11}, ax=ax
    ),
    "compare three": lambda ax: plot.compare([real(c) for c in ("v5p", "v6e", "v7x")], JOBS, ax=ax),
    "compare all": lambda ax: plot.compare(ROOFS, JOBS, ax=ax),
    "fusion": lambda ax: plot.fusion(
        real("h100"), CHAIN, FUSED, steps={"2 kernels": rh.total(*HALVES)}, ax=ax
    ),
    "hierarchical": lambda ax: plot.hierarchical(DEEP, TILED, ax=ax),
    "lines": lambda ax: plot.lines(
        N,
        {"square": SQUARE, "8 rows": rh.work.matmul(8, N, N).intensity},
        hlines={f"ridge {c}": real(c).ridge for c in ("v5p", "v6e", "v7x", "h100", "b200")},
        xlabel="N",
        ylabel="arithmetic intensity (FLOP/byte)",
        ax=ax,
    ),
    "traffic": lambda ax: plot.traffic(
        {"4 kernels": CHAIN, "2 kernels": HALVES, "1 kernel": FUSED}, ax=ax
    ),
}


def by_gid(ax, gid):
    artists = [child for child in ax.get_children() if child.get_gid() == gid]
    assert len(artists) == 1, f"{gid}: {len(artists)} artists"
    return artists[0]


def at(ax, gid):
    x, y = by_gid(ax, gid).get_data()
    return float(x[0]), float(y[0])


def shown(ax, gid=None):
    ax.figure.draw_without_rendering()
    texts = visible_texts(ax.figure)
    return [t.get_text() for t in texts if gid is None or t.get_gid() == gid]


def text_overlaps(fig):
    """The pairs of visible texts of a figure whose boxes meet, as drawn, rotated ones too."""
    fig.draw_without_rendering()
    texts = visible_texts(fig)
    if not texts:
        return []
    boxes = np.array([labels.corners_of(text) for text in texts])
    outlines = np.hstack([boxes.min(axis=1), boxes.max(axis=1)])
    near = np.argwhere(np.triu(labels.touches(outlines, outlines), 1))
    pairs = ((i, j) for i, j in near if labels.meet(boxes[i], boxes[j]))
    return [(texts[i].get_text(), texts[j].get_text()) for i, j in pairs]


def visible_texts(fig):
    """The texts that a figure, as last drawn, shows: no empty, no hidden, no tick out of range."""
    unseen = set()
    for axis in fig.findobj(Axis):
        low, high = sorted(axis.get_view_interval())
        slack = (high - low) * 1e-9
        for tick in [*axis.get_major_ticks(), *axis.get_minor_ticks()]:
            if not low - slack <= tick.get_loc() <= high + slack or not axis.get_visible():
                unseen.update((tick.label1, tick.label2))
    return [
        text
        for text in fig.findobj(Text)
        if text.get_visible() and text.get_text().strip() and text not in unseen
    ]
