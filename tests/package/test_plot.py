"""Pictures: the numbers that they draw, and that every text can be read at two sizes."""

from __future__ import annotations

import base64
import itertools

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.text import Text

import roofline_helpers as rh
from roofline_helpers import BadType, BadValue, Roofline, UnknownName, plot

mpl.use("Agg")

SIZES = {"page": plot.SIZE, "phone": (3.6, 3.4)}

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
NEAR = {f"kernel {i}": 50 * 1.12**i for i in range(8)}
FAR = {"tiny": 0.05, "middle": 300.0, "huge": 1e5}
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
CHIPS = [chip.key for chip in rh.all_chips()]
ROOFS = [chip.roofline() for chip in rh.all_chips() if "bf16" in chip.matrix]
N = np.geomspace(32, 32768, 60).round()
SQUARE = rh.work.matmul(N, N, N).intensity


def real(name: str) -> Roofline:
    return rh.chip(name).roofline()


PICTURES = {
    "roofline alone": lambda ax: plot.roofline(ROOF, ax=ax),
    "roofline, one job": lambda ax: plot.roofline(ROOF, JOBS["LayerNorm"], ax=ax),
    "roofline, jobs": lambda ax: plot.roofline(real("v7x"), JOBS, ax=ax),
    "roofline, jobs, vector": lambda ax: plot.roofline(real("h100"), JOBS, vector=True, ax=ax),
    "roofline, slow": lambda ax: plot.roofline(real("orin-nx"), JOBS, ax=ax),
    "roofline, twins": lambda ax: plot.roofline(real("v7x"), TWINS, ax=ax),
    "roofline, near": lambda ax: plot.roofline(ROOF, NEAR, ax=ax),
    "roofline, far": lambda ax: plot.roofline(real("v7x"), FAR, ax=ax),
    "roofline, CPU": lambda ax: plot.roofline(Roofline(80e9, 25e9), {"a": 0.5, "b": 8}, ax=ax),
    "roofline, achieved": lambda ax: plot.roofline(
        ROOF, JOBS, achieved={"FFN up-projection": 60e12, "LayerNorm": 1e12, "GELU": 3e11}, ax=ax
    ),
    "compare three": lambda ax: plot.compare([real(c) for c in ("v5p", "v6e", "v7x")], JOBS, ax=ax),
    "compare all": lambda ax: plot.compare(ROOFS, JOBS, ax=ax),
    "compare all, no jobs": lambda ax: plot.compare(ROOFS, ax=ax),
    "fusion": lambda ax: plot.fusion(
        real("h100"), CHAIN, FUSED, steps={"2 kernels": rh.total(*HALVES)}, ax=ax
    ),
    "fusion, bent": lambda ax: plot.fusion(
        ROOF, ("read twice", TWINS["matmul 600"].reading(a=9)), TWINS["matmul 607"], ax=ax
    ),
    "hierarchical": lambda ax: plot.hierarchical(DEEP, TILED, ax=ax),
    "hierarchical, H100": lambda ax: plot.hierarchical(
        rh.chip("h100").roofline(levels=("hbm", "l2"), network="nvlink"),
        {"matmul": TILED["matmul"].with_traffic(l2=2e9)},
        ax=ax,
    ),
    "heatmap": lambda ax: plot.heatmap(JOBS, CHIPS[:12], ax=ax),
    "heatmap, all": lambda ax: plot.heatmap(JOBS, CHIPS, ax=ax),
    "lines": lambda ax: plot.lines(
        N,
        {"square": SQUARE, "8 rows": rh.work.matmul(8, N, N).intensity},
        hlines={f"ridge {c}": real(c).ridge for c in ("v5p", "v6e", "v7x", "h100", "b200")},
        xlabel="N",
        ylabel="arithmetic intensity (FLOP/byte)",
        ax=ax,
    ),
    "lines, linear": lambda ax: plot.lines(
        [1, 2, 3], {"a": [1, 2, 3], "b": [1, 1.5, 2.9]}, logx=False, logy=False, ax=ax
    ),
    "traffic": lambda ax: plot.traffic(
        {"4 kernels": CHAIN, "2 kernels": HALVES, "1 kernel": FUSED}, ax=ax
    ),
}


@pytest.fixture(autouse=True)
def _close_figures():
    with mpl.rc_context():
        yield
    plt.close("all")


@pytest.fixture
def ax():
    return plt.subplots(figsize=plot.SIZE)[1]


def by_gid(ax, gid):
    found = [child for child in ax.get_children() if child.get_gid() == gid]
    assert len(found) == 1, f"{gid}: {len(found)} artists"
    return found[0]


def at(ax, gid):
    x, y = by_gid(ax, gid).get_data()
    return float(x[0]), float(y[0])


def shown(ax, gid=None):
    texts = plot.visible_texts(ax.figure)
    return [t.get_text() for t in texts if gid is None or t.get_gid() == gid]


# --- every picture can be read -------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", PICTURES)
def test_picture_can_be_read(name, size):
    plot.use_style()
    fig, ax = plt.subplots(figsize=SIZES[size])
    assert PICTURES[name](ax) is ax
    fig.set_dpi(200)  # as in the sharp ("retina") picture
    assert plot.text_overlaps(fig) == []
    frame = fig.bbox
    boxes = {t.get_text(): Text.get_window_extent(t) for t in plot.visible_texts(fig)}
    outside = [
        text
        for text, box in boxes.items()
        if box.x0 < frame.x0 - 1
        or box.y0 < frame.y0 - 1
        or box.x1 > frame.x1 + 1
        or box.y1 > frame.y1 + 1
    ]
    assert outside == []
    markers = [
        line.get_transform().transform(line.get_xydata())[0]
        for line in ax.lines
        if (line.get_gid() or "").startswith(("job:", "achieved:", "ridge"))
        and line.get_marker() != "None"
    ]
    labels = [t for t in ax.texts if t.get_gid() == "label" and t.get_visible()]
    for text, spot in itertools.product(labels, markers):
        assert not Text.get_window_extent(text).contains(*spot), text.get_text()
    smallest = min(t.get_fontsize() for t in plot.visible_texts(fig))
    assert smallest >= 9


@pytest.mark.parametrize(
    "name",
    ["roofline, jobs", "compare three", "fusion", "hierarchical", "heatmap", "lines", "traffic"],
)
def test_pictures_make_their_own_axes_and_leave_the_defaults_alone(name):
    before = dict(mpl.rcParams)
    made = PICTURES[name](None)
    assert plot.text_overlaps(made.figure) == []
    assert dict(mpl.rcParams) == before


def test_a_picture_is_drawn_the_same_twice():
    def pixels():
        fig, ax = plt.subplots(figsize=(3.6, 3.4))
        plot.roofline(real("v7x"), JOBS, ax=ax)
        fig.canvas.draw()
        return np.asarray(fig.canvas.buffer_rgba()).copy()

    first, second = pixels(), pixels()
    assert first.std() > 0
    assert np.array_equal(first, second)


def test_a_title_and_a_new_size_make_no_overlap():
    axes = plot.compare([real(c) for c in ("v5p", "v6e", "v7x")], JOBS)
    axes.set_title("Three TPUs")
    axes.figure.set_size_inches(3.6, 3.4)
    assert plot.text_overlaps(axes.figure) == []
    axes = plot.roofline(real("v7x"), JOBS)
    axes.set_title("One TPU")
    axes.figure.set_size_inches(3.6, 3.4)
    assert plot.text_overlaps(axes.figure) == []


def test_two_pictures_side_by_side():
    fig, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
    plot.roofline(real("v7x"), JOBS, ax=left)
    plot.compare([real("v6e"), real("v7x")], JOBS, ax=right)
    assert plot.text_overlaps(fig) == []


# --- the overlap check itself --------------------------------------------------------------------


def test_overlaps_are_found(ax):
    ax.text(0.5, 0.5, "one")
    ax.text(0.51, 0.5, "two")
    ax.text(0.1, 0.9, "three")
    assert plot.text_overlaps(ax.figure) == [("one", "two")]


def test_overlaps_of_tick_labels_legends_and_axis_labels_are_found(ax):
    ax.plot([0, 1], [0, 1], label="a line")
    ax.legend(loc="center")
    box = ax.get_window_extent()
    ax.set_xticks([0.5, 0.51], ["first tick", "second tick"])
    legend_text = ax.get_legend().get_texts()[0]
    ax.figure.canvas.draw()
    spot = ax.transData.inverted().transform(legend_text.get_window_extent().min)
    ax.text(*spot, "on the legend")
    ax.set_ylabel("moved")
    ax.yaxis.set_label_coords(0.5, 0.2)
    ax.text(0.5, 0.2, "on the label", transform=ax.transAxes, ha="center")
    assert box.width > 0
    pairs = {frozenset(pair) for pair in plot.text_overlaps(ax.figure)}
    assert {
        frozenset({"first tick", "second tick"}),
        frozenset({"on the legend", "a line"}),
        frozenset({"on the label", "moved"}),
    } <= pairs


def test_a_turned_text_counts_with_its_turned_box(ax):
    ax.text(0.5, 0.5, "a long slanted text", rotation=45, ha="center", va="center")
    ax.text(0.6, 0.38, "beside")  # inside the upright outline, outside the turned box
    assert plot.text_overlaps(ax.figure) == []
    ax.text(0.5, 0.5, "on it", ha="center", va="center")
    assert plot.text_overlaps(ax.figure) == [("a long slanted text", "on it")]


def test_hidden_and_empty_texts_do_not_count(ax):
    ax.text(0.5, 0.5, "one")
    ax.text(0.5, 0.5, "hidden", visible=False)
    ax.text(0.5, 0.5, "  ")
    assert plot.text_overlaps(ax.figure) == []
    assert "hidden" not in shown(ax)


# --- labels --------------------------------------------------------------------------------------


def test_labels_avoid_texts_markers_legends_and_artists(ax):
    ax.set(xlim=(0, 1), ylim=(0, 1))
    ax.plot([0.5], [0.5], "o", ms=30)
    ax.plot([], [], label="a line")
    legend = ax.legend(loc="upper left")
    text = ax.text(0.5, 0.62, "in the way", ha="center")
    patch = ax.add_patch(plt.Rectangle((0.55, 0.3), 0.4, 0.3))
    (made,) = plot.place_labels(ax, [(0.5, 0.5, "label")], avoid=[patch])
    (corner,) = plot.place_labels(ax, [(0.01, 0.99, "corner")])
    ax.figure.canvas.draw()
    box = Text.get_window_extent(made)
    assert not box.overlaps(text.get_window_extent())
    assert not box.overlaps(patch.get_window_extent())
    spot = ax.transData.transform((0.5, 0.5))
    assert np.all(np.clip(spot, box.min, box.max) != spot) or not box.contains(*spot)
    assert not Text.get_window_extent(corner).overlaps(legend.get_window_extent())
    for each in (made, corner):
        inner = Text.get_window_extent(each)
        assert ax.bbox.x0 <= inner.x0
        assert inner.x1 <= ax.bbox.x1
        assert ax.bbox.y0 <= inner.y0
        assert inner.y1 <= ax.bbox.y1


def test_a_far_label_has_a_leader_from_its_point_to_its_box(ax):
    ax.set(xlim=(0, 1), ylim=(0, 1))
    ax.plot([0.5], [0.5], "o", ms=70)
    (made,) = plot.place_labels(ax, [(0.5, 0.5, "far")])
    (leader,) = (line for line in ax.lines if line.get_gid() == "leader")
    ax.figure.canvas.draw()
    start, end = leader.get_xydata()
    assert start == pytest.approx(ax.transData.transform((0.5, 0.5)))
    box = Text.get_window_extent(made)
    assert np.abs(np.clip(end, box.min, box.max) - end).max() < 1


def test_labels_of_coinciding_points_are_stacked():
    axes = plot.roofline(real("v7x"), TWINS)
    stacked = [text for text in shown(axes, "label") if "\n" in text]
    assert [text.split("\n") for text in stacked] == [list(TWINS)]


def test_without_room_points_get_numbers_and_a_key_below():
    fig, ax = plt.subplots(figsize=(3.6, 3.4))
    ax.set(xlim=(0, 1), ylim=(0, 1), xlabel="x")
    points = [(x, y) for x in (0.3, 0.4, 0.5, 0.6) for y in (0.4, 0.5, 0.6)]
    names = [f"a long kernel name {i:02}" for i in range(len(points))]
    for x, y in points:
        ax.plot([x], [y], "ko")
    fig.set_layout_engine("constrained")
    made = plot.place_labels(ax, [(*p, name) for p, name in zip(points, names, strict=True)])
    assert plot.text_overlaps(fig) == []
    (key,) = shown(ax, "key")
    entries = dict(entry.split(": ") for line in key.split("\n") for entry in line.split("    "))
    texts = [text.get_text() for text in made]
    numbered = {text: name for text, name in zip(texts, names, strict=True) if text.isdigit()}
    assert numbered == entries
    assert len(entries) >= 4
    fig.set_size_inches(30, 20)  # with room, the names come back and the key goes
    fig.draw_without_rendering()
    assert [text.get_text() for text in made] == names
    assert shown(ax, "key") == []


def test_labels_are_placed_again_only_where_something_has_changed(monkeypatch):
    tried, solved = [], []
    greedy, solve = plot._Placer._greedy, plot._Placer._solve
    monkeypatch.setattr(
        plot._Placer, "_greedy", lambda *given: [tried.append(1), greedy(*given)][1]
    )
    monkeypatch.setattr(plot._Placer, "_solve", lambda *given: [solved.append(1), solve(*given)][1])
    points = {f"kernel {i}": float(10 ** (-1 + i / 8)) for i in range(40)}
    axes = plot.roofline(ROOF, points)
    axes.figure.draw_without_rendering()
    assert 0 < len(tried) <= 4 * 8 * len(solved)  # four orders, eight tries of each
    few = plot.roofline(ROOF, dict(list(points.items())[:20]))
    few.figure.draw_without_rendering()
    tried.clear()
    few.figure.draw_without_rendering()
    assert tried == []
    few.figure.set_size_inches(5, 4)
    few.figure.draw_without_rendering()
    assert tried


def test_place_labels_refuses_what_is_no_label(ax):
    with pytest.raises(BadType, match="Axes"):
        plot.place_labels("ax", [])
    with pytest.raises(BadType, match=r"\(x, y, text\)"):
        plot.place_labels(ax, [(1, 2)])
    with pytest.raises(BadType, match="Figure"):
        plot.text_overlaps(ax)


# --- the numbers drawn are the model's -----------------------------------------------------------


@pytest.mark.parametrize("name", ["v7x", "h100", "orin-nx"])
def test_roofline_draws_the_model(name):
    roof = real(name)
    axes = plot.roofline(roof, JOBS)
    low, high = axes.get_xlim()
    memory = by_gid(axes, "roof:memory").get_xydata()
    compute = by_gid(axes, "roof:compute").get_xydata()
    assert memory.tolist() == [[low, roof.attainable(low)], [roof.ridge, roof.peak]]
    assert compute.tolist() == [[roof.ridge, roof.peak], [high, roof.peak]]
    assert at(axes, "ridge") == (roof.ridge, roof.peak)
    for label, job in JOBS.items():
        assert at(axes, f"job:{label}") == (job.intensity, roof.attainable(job))
    drawn = [line.get_ydata()[0] for line in axes.lines if line.get_gid() == "roof:vector"]
    assert drawn == ([roof.vector] if roof.vector else [])


def test_regions_are_shaded_below_the_roof_and_named():
    axes = plot.roofline(ROOF, JOBS)
    low, high = axes.get_xlim()
    for part, ends in (("memory", (low, ROOF.ridge)), ("compute", (ROOF.ridge, high))):
        (path,) = by_gid(axes, f"region:{part}").get_paths()
        xs, ys = path.vertices.T
        assert (xs.min(), xs.max()) == pytest.approx(ends)
        assert ys.max() == pytest.approx(ROOF.attainable(ends[1]))
        assert ys.min() == pytest.approx(axes.get_ylim()[0])
    names = [text.replace("\n", "") for text in shown(axes, "region")]
    assert sorted(names) == ["compute-bound", "memory-bound"]
    bare = plot.roofline(ROOF, regions=False, ridge=False)
    assert not any((child.get_gid() or "").startswith("region") for child in bare.get_children())
    assert shown(bare, "region") == []
    assert not any((line.get_gid() or "").startswith("ridge") for line in bare.lines)


def test_ridge_and_ceilings_are_labelled_with_their_values():
    texts = shown(plot.roofline(Roofline(989e12, 3.35e12, vector=67e12), vector=True))
    assert "ridge 295" in texts
    assert "peak 989 TFLOP/s" in texts
    assert "memory 3.35 TB/s" in texts
    assert "vector unit 67 TFLOP/s" in texts


def test_the_vector_ceiling_shows_when_a_job_needs_it_or_on_request():
    def drawn(*args, **kwargs):
        axes = plot.roofline(*args, **kwargs)
        return [line.get_gid() for line in axes.lines].count("roof:vector")

    assert drawn(ROOF, JOBS["GELU"]) == 1
    assert drawn(ROOF, TWINS["matmul 600"]) == 0
    assert drawn(ROOF, vector=True) == 1
    assert drawn(ROOF, JOBS["GELU"], vector=False) == 0
    with pytest.raises(BadValue, match="no vector ceiling"):
        plot.roofline(Roofline(1e14, 1e12), vector=True)


def test_a_vector_job_sits_on_the_vector_ceiling():
    busy = rh.work.elementwise(10**6, flops=1000, dtype="fp32")
    axes = plot.roofline(ROOF, {"busy": busy})
    assert at(axes, "job:busy") == (busy.intensity, ROOF.vector)
    (line,) = (line for line in axes.lines if line.get_gid() == "roof:vector")
    assert line.get_xdata()[0] == ROOF.vector / ROOF.bandwidth


def test_jobs_in_all_their_forms():
    job = JOBS["GELU"]
    for given in (job, [job], [("gelu", job)], {"gelu": job}, (x for x in [job])):
        assert at(plot.roofline(ROOF, given), "job:gelu") == (job.intensity, ROOF.attainable(job))
    axes = plot.roofline(ROOF, [2.5, ("named", 40)])
    assert at(axes, "job:2.5") == (2.5, 2.5e12)
    assert at(axes, "job:named") == (40.0, 40e12)


def test_achieved_points_hang_below_the_roof():
    axes = plot.roofline(ROOF, {"a": 10, "b": 1000}, achieved={"a": 4e12})
    assert at(axes, "job:a") == (10.0, 1e13)
    assert at(axes, "achieved:a") == (10.0, 4e12)
    assert by_gid(axes, "gap:a").get_xydata().tolist() == [[10, 4e12], [10, 1e13]]
    assert "a, 40 %" in shown(axes)
    assert axes.get_ylabel() == "attainable, achieved\n(TFLOP/s, % of roof)"
    assert "b" in shown(axes)
    with pytest.raises(UnknownName, match="Nearest: 'a1'"):
        plot.roofline(ROOF, {"a1": 10}, achieved={"a2": 1e12})
    with pytest.raises(BadValue, match="achieved"):
        plot.roofline(ROOF, {"a": 10}, achieved={"a": -1})


def test_an_achieved_point_above_the_roof_is_inside_the_axes():
    axes = plot.roofline(ROOF, {"a": 1000}, achieved={"a": 500e12})
    assert axes.get_ylim()[1] > 500e12


def test_the_range_of_intensities():
    axes = plot.roofline(ROOF, intensity=(1, 1000))
    assert axes.get_xlim() == (1, 1000)
    axes = plot.roofline(ROOF, intensity=(1, 10))  # left of the ridge: no compute part
    assert [line.get_gid() for line in axes.lines] == ["roof:memory"]
    axes = plot.roofline(ROOF, FAR)
    assert axes.get_xlim()[0] < 0.05
    assert axes.get_xlim()[1] > 1e5
    for bad in [(10, 1), (0, 1), (1, float("inf"))]:
        with pytest.raises(BadValue):
            plot.roofline(ROOF, intensity=bad)
    for bad in [5, (1, 2, 3), ("a", "b")]:
        with pytest.raises(BadType):
            plot.roofline(ROOF, intensity=bad)


def test_ticks_are_in_the_unit_of_the_label():
    axes = plot.roofline(Roofline(100e12, 1e12))
    assert axes.get_ylabel() == "attainable (TFLOP/s)"
    assert axes.get_xlabel() == "arithmetic intensity (FLOP/byte)"
    assert axes.yaxis.get_major_formatter()(10e12) == "10"
    assert axes.xaxis.get_major_formatter()(10000) == "10k"
    small = plot.roofline(Roofline(80e9, 25e9))
    assert small.get_ylabel() == "attainable (GFLOP/s)"
    assert small.yaxis.get_major_formatter()(10e9) == "10"


def test_compare_draws_each_model():
    axes = plot.compare(ROOFS, JOBS)
    for roof in ROOFS:
        assert at(axes, f"ridge:{roof.name}") == (roof.ridge, roof.peak)
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


def test_series_differ_by_marker_and_by_colour_or_line():
    axes = plot.compare(ROOFS)
    lines = [by_gid(axes, f"roof:{roof.name}") for roof in ROOFS]
    marks = [by_gid(axes, f"ridge:{roof.name}") for roof in ROOFS]
    assert len({mark.get_marker() for mark in marks[: len(plot.MARKERS)]}) == min(len(ROOFS), 12)
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == len(ROOFS)


def test_fusion_draws_the_ratio_of_the_bytes():
    roof = real("h100")
    steps = {"2 kernels": rh.total(*HALVES)}
    axes = plot.fusion(roof, ("4 kernels", CHAIN), FUSED, steps=steps)
    before = rh.total(*CHAIN)
    assert at(axes, "job:4 kernels") == (before.intensity, roof.attainable(before))
    assert at(axes, "job:after") == (FUSED.intensity, roof.attainable(FUSED))
    assert at(axes, "job:2 kernels") == (steps["2 kernels"].intensity, pytest.approx(
        roof.attainable(steps["2 kernels"])))  # fmt: skip
    assert f"traffic ÷ {before.bytes / FUSED.bytes:.1f}" in shown(axes)
    arrow = by_gid(axes, "arrow").get_xydata()
    assert arrow[0].tolist() == [before.intensity, roof.attainable(before)]
    assert arrow[-1].tolist() == [FUSED.intensity, roof.attainable(FUSED)]
    assert "traffic × 2.5" in shown(plot.fusion(roof, FUSED, CHAIN))


def test_the_fusion_arrow_bends_at_the_roof():
    slow, fast = rh.work.matmul(300, 300, 300).reading(a=9), rh.work.matmul(600, 600, 600)
    axes = plot.fusion(ROOF, slow, fast)
    assert slow.intensity < ROOF.ridge < fast.intensity
    assert by_gid(axes, "arrow").get_xydata().tolist() == [
        [slow.intensity, ROOF.attainable(slow)],
        [ROOF.ridge, ROOF.peak],
        [fast.intensity, ROOF.peak],
    ]


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
        assert min(rates.values()) == pytest.approx(DEEP.attainable(job))
        paper = to_rgb(plot.PALETTE["paper"])
        for level, rate in rates.items():
            face = to_rgb(by_gid(axes, f"job:{label}:{level}").get_markerfacecolor())
            assert (face != paper) == (rate == min(rates.values()))
    bound = min(TILED["layernorm"].traffic, key=lambda level: at(axes, f"job:layernorm:{level}")[1])
    assert bound == DEEP.limit(TILED["layernorm"])


def test_heatmap_writes_the_share_of_peak():
    axes = plot.heatmap({"matmul": TWINS["matmul 600"], "ai 1": 1.0}, ["v7x", "t4", ROOF])
    cells = {text.get_gid(): text.get_text() for text in axes.texts}
    v7x = real("v7x")
    assert cells["cell:0:0"] == f"{100 * v7x.attainable(TWINS['matmul 600']) / v7x.peak:.0f}"
    assert cells["cell:0:1"] == f"{100 / v7x.ridge:.1f}"
    assert (cells["cell:1:0"], cells["cell:1:1"]) == ("–", "–")  # the T4 has no bf16
    assert (cells["cell:2:0"], cells["cell:2:1"]) == ("100", "1.0")
    assert axes.collections[0].get_array().size == 6
    assert plot.heatmap(JOBS, CHIPS).get_xlabel() == "attainable, % of bf16 peak"


def test_heatmap_cells_can_be_read():
    axes = plot.heatmap(JOBS, CHIPS)
    mesh = axes.collections[0]
    colors = mesh.cmap(mesh.norm(mesh.get_array()))
    flat = colors.reshape(len(CHIPS), len(JOBS), 4)
    for text in axes.texts:
        _, i, j = text.get_gid().split(":")
        if text.get_text() != "–":
            assert contrast(text.get_color(), flat[int(i), int(j)]) >= 4.5


def test_heatmap_refuses_bytes_of_another_type():
    fp8 = rh.work.matmul(600, 600, 600, "fp8")
    with pytest.raises(BadValue, match="fp8 work, held against bf16 peaks"):
        plot.heatmap({"fp8": fp8}, ["v7x"])
    assert plot.heatmap({"fp8": fp8}, ["v7x"], dtype="fp8")
    with pytest.raises(UnknownName, match="Nearest: 'v7x'"):
        plot.heatmap(JOBS, ["v7y"])
    with pytest.raises(UnknownName, match="data type"):
        plot.heatmap(JOBS, ["v7x"], dtype="fp7")
    for jobs, chips in (({}, ["v7x"]), (JOBS, [])):
        with pytest.raises(BadValue, match="needs kernels and chips"):
            plot.heatmap(jobs, chips)


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
        ([1, 2], {"a": [1, float("nan")]}, BadValue),
        ([1, 2], {"a": ["b", "c"]}, BadType),
        ([0, 2], {"a": [1, 2]}, BadValue),
        ([1], {"a": [1]}, BadValue),
        ([1, 2], {}, BadValue),
        ("x", {"a": [1]}, BadType),
        ([1, 2], [1, 2], BadType),
    ],
)
def test_lines_refuse(x, series, error):
    with pytest.raises(error):
        plot.lines(x, series)


def test_traffic_draws_every_byte_once():
    axes = plot.traffic({"4 kernels": CHAIN, "1 kernel": FUSED.reading(x=2)})
    for name, jobs in (("4 kernels", CHAIN), ("1 kernel", [FUSED.reading(x=2)])):
        bars = [p for p in axes.patches if (p.get_gid() or "").startswith(f"bytes:{name}:")]
        assert sum(bar.get_width() for bar in bars) == sum(job.bytes for job in jobs)
        for direction, hatched in (("read_bytes", False), ("written_bytes", True)):
            drawn = sum(bar.get_width() for bar in bars if bool(bar.get_hatch()) == hatched)
            assert drawn == sum(getattr(job, direction) for job in jobs)
        ends = sorted((bar.get_x(), bar.get_x() + bar.get_width()) for bar in bars)
        assert all(a[1] == pytest.approx(b[0]) for a, b in itertools.pairwise(ends))
    assert "168 MB" in shown(axes)
    lines = [line.get_gid() for line in axes.lines]
    assert lines == [f"kernel:4 kernels:{i}" for i in (1, 2, 3)]
    legend = [text.get_text() for text in axes.get_legend().get_texts()]
    assert legend == ["x", "a", "b", "mask", "c", "residual", "y", "γ, β (thin)", "read", "written"]


# --- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: plot.roofline("v7x"), BadType, "Roofline is needed, got 'v7x'"),
        (lambda: plot.roofline(ROOF, {"a": "b"}), BadType, "intensity of a"),
        (lambda: plot.roofline(ROOF, {"a": True}), BadType, "intensity of a"),
        (lambda: plot.roofline(ROOF, [0]), BadValue, "intensity"),
        (lambda: plot.roofline(ROOF, [float("nan")]), BadValue, "intensity"),
        (lambda: plot.roofline(ROOF, {"a": [1, 2]}), BadType, "one number"),
        (lambda: plot.roofline(ROOF, rh.work.gelu(np.array([1, 2]))), BadType, "one size"),
        (lambda: plot.roofline(ROOF, rh.work.elementwise(9, flops=0)), BadValue, "no FLOPs"),
        (lambda: plot.roofline(ROOF, ax="ax"), BadType, "Axes is needed"),
        (lambda: plot.compare([]), BadValue, "at least one roofline"),
        (lambda: plot.compare(["v7x"]), BadType, "Roofline is needed"),
        (lambda: plot.fusion(ROOF, [], FUSED), BadValue, "at least one kernel"),
        (lambda: plot.fusion(ROOF, 3, FUSED), BadType, "Work is needed, got 3"),
        (lambda: plot.hierarchical(DEEP, {"a": 3}), BadType, "needs a Work"),
        (lambda: plot.hierarchical("v7x", TILED), BadType, "Roofline is needed"),
        (lambda: plot.traffic({}), BadType, "variants"),
        (lambda: plot.traffic({"a": []}), BadValue, "at least one kernel"),
        (lambda: plot.traffic({"a": [1]}), BadType, "Work is needed"),
    ],
)
def test_bad_input_gets_a_clear_error(call, error, message):
    with pytest.raises(error, match=message):
        call()


# --- colours -------------------------------------------------------------------------------------

# Machado, Oliveira, Fernandes 2009 (doi:10.1109/TVCG.2009.113), severity 1, on linear RGB
SIGHT = {
    "normal": np.eye(3),
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
}


def linear(color):
    c = np.array(to_rgb(color))
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def contrast(a, b):
    lights = sorted(float(linear(c) @ [0.2126, 0.7152, 0.0722]) for c in (a, b))
    return (lights[1] + 0.05) / (lights[0] + 0.05)


def lab(color, sight):
    rgb = np.clip(np.array(SIGHT[sight]) @ linear(color), 0, 1)
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    xyz = np.array(to_xyz) @ rgb / [0.9505, 1, 1.089]
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def nearest(colors, sight):
    points = [lab(color, sight) for color in colors]
    return min(np.linalg.norm(a - b) for a, b in itertools.combinations(points, 2))


def test_contrast_is_that_of_wcag():
    assert contrast("black", "white") == pytest.approx(21)
    assert contrast("#777777", "white") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("sight", SIGHT)
def test_colours_stay_apart(sight):
    assert nearest(plot.PALETTE["series"], sight) >= 15
    roles = [plot.PALETTE[role] for role in ("memory", "compute", "ridge")]
    assert nearest(roles, sight) >= 15
    levels = [*plot.PALETTE["levels"], plot.PALETTE["compute"]]
    assert nearest(levels, sight) >= 10
    assert nearest(["#00ff00", "#00ff01", "#ff0000"], sight) < 2  # the measure itself


def test_texts_and_lines_stand_out_from_the_paper():
    paper = plot.PALETTE["paper"]
    for role in ("ink", "muted", "memory", "compute", "network", "ridge"):
        assert contrast(plot.PALETTE[role], paper) >= 4.5, role
    for color in plot.PALETTE["levels"]:
        assert contrast(color, paper) >= 4.5
    for color in plot.PALETTE["series"]:
        assert contrast(color, paper) >= 3  # lines and markers; their names are in ink


# --- style ---------------------------------------------------------------------------------------


def test_style_is_set_on_request_only():
    assert mpl.rcParams["figure.figsize"] == mpl.rcParamsDefault["figure.figsize"]
    plot.use_style()
    assert tuple(mpl.rcParams["figure.figsize"]) == plot.SIZE
    assert mpl.rcParams["figure.facecolor"] == plot.PALETTE["paper"]
    assert mpl.rcParams["font.size"] >= 9


def test_style_in_ipython_makes_sharp_pictures_without_versions():
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance()
    try:
        plot.use_style()
        draw = shell.display_formatter.formatters["image/png"]
        draw.enabled = True
        data, about = draw(plt.subplots()[0])
        picture = base64.b64decode(data)
        assert b"Software" not in picture
        wide = int.from_bytes(picture[16:20], "big")  # pixels, in the PNG's header
        assert wide == pytest.approx(2 * about["width"], abs=2)
    finally:
        InteractiveShell.clear_instance()
