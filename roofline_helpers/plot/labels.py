"""Labels without overlaps: geometry, the solver, and placement."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.text import Annotation, Text
from numpy.typing import NDArray

from roofline_helpers.common.checks import BadType
from roofline_helpers.plot.style import (
    PALETTE,
    SMALL,
    AtDraw,
    figure_of,
    halo,
    has_marker,
    lay_out,
    loose_line,
    note,
    point_of,
    request_relayout,
    require,
    size_of,
)

# --- Geometry: boxes and segments in pixels ------------------------------------------------------

Pixels: TypeAlias = NDArray[np.float64]
"""Coordinates in pixels."""


def touches(a: Pixels, b: Pixels) -> NDArray[np.bool_]:
    """Return which boxes of `a` (rows) overlap which of `b` (columns)."""
    a, b = a[:, None], b[None]
    before = a[..., :2] < b[..., 2:]
    after = b[..., :2] < a[..., 2:]
    return np.asarray((before & after).all(axis=-1))


def distances(boxes: Pixels, point: Pixels) -> Pixels:
    """Return the distance of each box from a point: 0 inside."""
    near = np.clip(point, boxes[:, :2], boxes[:, 2:])
    return np.asarray(np.hypot(*(near - point).T))


def hits(segments: Pixels, boxes: Pixels) -> NDArray[np.bool_]:
    """Return which segments (rows) pass through which boxes (columns): the slab method."""
    start = segments[:, None, :2]
    step = segments[:, None, 2:] - start
    with np.errstate(divide="ignore", invalid="ignore"):
        to_low = (boxes[None, :, :2] - start) / step
        to_high = (boxes[None, :, 2:] - start) / step
    nearer, farther = np.fmin(to_low, to_high), np.fmax(to_low, to_high)
    enter = np.fmax(nearer[..., 0], nearer[..., 1])
    leave = np.fmin(farther[..., 0], farther[..., 1])
    return np.asarray((enter < leave) & (leave > 0) & (enter < 1))


def segments_cross(a: Pixels, b: Pixels) -> NDArray[np.bool_]:
    """Return which segments of `a` (rows) cross which of `b` (columns)."""

    def side(line: Pixels, point: Pixels) -> Pixels:
        along, to = line[..., 2:] - line[..., :2], point - line[..., :2]
        cross = along[..., 0] * to[..., 1] - along[..., 1] * to[..., 0]
        return np.asarray(np.sign(cross))

    a, b = a[:, None], b[None]
    return np.asarray(
        (side(a, b[..., :2]) * side(a, b[..., 2:]) < 0)
        & (side(b, a[..., :2]) * side(b, a[..., 2:]) < 0)
    )


def corners_of(text: Text, renderer: Any = None) -> Pixels:
    """Return the four corners of a text's box in pixels, turned as the text is."""
    if isinstance(text, Annotation) and renderer is not None:
        text.update_positions(renderer)
    angle = text.get_rotation()
    outline = Text.get_window_extent(text, renderer)
    centre = np.add(outline.min, outline.max) / 2  # which a rotation doesn't move
    text.set_rotation(0)
    size = size_of(text, renderer)
    text.set_rotation(angle)
    turn = np.deg2rad(angle)
    half = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]]) * size / 2
    cos, sin = np.cos(turn), np.sin(turn)
    matrix = np.array([[cos, sin], [-sin, cos]])
    return np.asarray(centre + half @ matrix)


def upright_boxes(corners: Pixels) -> list[Pixels]:
    """Return upright boxes that cover a rotated one."""
    (a, b, _, d) = corners
    along, up = b - a, d - a
    count = max(1, math.ceil(np.hypot(*along) / max(np.hypot(*up), 1)))
    if abs(along[0]) < 1e-6 or abs(along[1]) < 1e-6:
        count = 1
    pieces = []
    for i in range(count):
        ends = (a + along * i / count, a + along * (i + 1) / count)
        piece = [end + side for end in ends for side in (0, up)]
        pieces.append(np.hstack([np.min(piece, axis=0), np.max(piece, axis=0)]))
    return pieces


def meet(a: Pixels, b: Pixels) -> bool:
    """Return whether two rotated boxes overlap: no edge direction separates them."""
    for box in (a, b):
        for edge in (box[1] - box[0], box[3] - box[0]):
            on_a, on_b = a @ edge, b @ edge
            slack = 1e-6 * float(np.hypot(*edge)) + 1e-9
            if bool(on_a.max() <= on_b.min() + slack) or bool(on_b.max() <= on_a.min() + slack):
                return False
    return True


def spread(wanted: Pixels, gap: float, low: float, high: float) -> Pixels:
    """Return the positions nearest to the wanted ones, in the same order, at least `gap` apart."""
    order = np.argsort(wanted, kind="stable")
    ramp = gap * np.arange(len(wanted))
    groups: list[list[float]] = []  # isotonic regression: pool neighbours that are out of order
    for value in wanted[order] - ramp:
        groups.append([value])
        while len(groups) > 1 and np.mean(groups[-2]) > np.mean(groups[-1]):
            groups[-2:] = [groups[-2] + groups[-1]]
    flat = np.concatenate([[np.mean(group)] * len(group) for group in groups])
    placed = np.empty(len(wanted))
    placed[order] = np.clip(flat, low, max(low, high - ramp[-1])) + ramp
    return placed


# --- The solver: a greedy placement, repeated in several orders ----------------------------------

STEPS = (7.0, 10.0, 14.0, 20.0, 28.0, 38.0, 50.0, 66.0, 86.0, 110.0, 140.0, 180.0)
"""Distances from the point to try, in points of 1/72 inch."""

ANGLES = np.deg2rad([135, 315, 90, 45, 270, 225, 0, 180, 113, 67, 158, 293, 338, 22, 202, 247])
"""Directions to try, the preferred ones first."""

LEADER = 13.0
"""Points between anchor and name from which a leader is drawn."""

SAME = 4.0
"""Points within which markers count as one: their names are stacked."""

HARD = 1e3
"""The cost of a forbidden place."""


@dataclass(frozen=True)
class Scene:
    """The labels to place and the shapes to keep clear of, in pixels."""

    anchors: Pixels  # [names, 2]
    sizes: Pixels  # width and height of each name
    markers: Pixels  # boxes [n, 4] that no name may cover; a leader starts inside its own
    writing: Pixels  # boxes of other texts
    strokes: Pixels  # segments [n, 4] that names should avoid
    frame: Pixels  # the box that names must stay in
    point: float  # 1/72 inch


class Candidates(NamedTuple):
    """The candidate places of one name: their boxes, the leaders to them (NaN: none), the costs."""

    boxes: Pixels
    leaders: Pixels
    costs: Pixels


class _Outcome(NamedTuple):
    costs: Pixels
    boxes: Pixels


def solve(scene: Scene) -> _Outcome:
    """Return the cheapest outcome of several greedy placements.

    An optimal placement is NP-hard. Greedy placement depends on the order of names, so several
    orders are tried, and names without a place are moved to the front.
    """
    anchors = scene.anchors
    candidates = [_candidates(scene, n) for n in range(len(anchors))]
    x = anchors[:, 0]
    crowd = [np.sum(np.hypot(*(anchors - a).T) < 60 * scene.point) for a in anchors]
    orders = (np.arange(len(x)), np.argsort(x), np.argsort(-x), np.argsort(crowd)[::-1])
    outcomes = []
    for order in orders:
        for _ in range(3):
            outcomes.append(greedy(order, candidates, scene.point))
            stuck = outcomes[-1].costs[order] >= HARD
            order = np.concatenate([order[stuck], order[~stuck]])
    return min(outcomes, key=lambda outcome: float(outcome.costs.sum()))


def greedy(order: NDArray[np.intp], candidates: Sequence[Candidates], point: float) -> _Outcome:
    """Give each name, in this order, the cheapest remaining place."""
    taken = np.empty((0, 4))
    leads = np.empty((0, 4))
    boxes = np.zeros((len(candidates), 4))
    paid = np.zeros(len(candidates))
    pad = np.array([-2, -1, 2, 1]) * point
    for i in order:
        own = candidates[i]
        cost = own.costs + HARD * (
            touches(own.boxes + pad, taken).sum(axis=1)
            + hits(own.leaders, taken).sum(axis=1)
            + hits(leads, own.boxes).sum(axis=0)
            + segments_cross(own.leaders, leads).sum(axis=1)
        )
        best = int(np.argmin(cost))
        paid[i], boxes[i] = cost[best], own.boxes[best]
        taken = np.vstack([taken, own.boxes[best]])
        if not np.isnan(own.leaders[best]).any():
            leads = np.vstack([leads, own.leaders[best]])
    return _Outcome(paid, boxes)


def _candidates(scene: Scene, n: int) -> Candidates:
    # costs are those without other names
    anchor, (w, h), point, frame = scene.anchors[n], scene.sizes[n], scene.point, scene.frame
    boxes = _boxes_around(anchor, w, h, point)
    order = np.tile(np.arange(len(ANGLES)), len(STEPS))
    left = boxes[:, 0]
    slide = np.clip(left, frame[0], max(frame[0], frame[2] - w)) - left
    boxes[:, [0, 2]] += slide[:, None]
    below, above = boxes[:, :2] < frame[:2], boxes[:, 2:] > frame[2:]
    outside = (below | above).any(axis=1)
    gap = distances(boxes, anchor)
    centres = (scene.markers[:, :2] + scene.markers[:, 2:]) / 2
    spots = np.vstack([scene.anchors, centres])
    others = spots[np.hypot(*(spots - anchor).T) > SAME * point]
    nearest = np.min([distances(boxes, a) for a in others], axis=0, initial=np.inf)
    leaders = _leaders(boxes, anchor, point)
    foreign = scene.markers
    if len(foreign):
        foreign = foreign[distances(foreign, anchor) > 0]
    pad = np.array([-4, -1, 4, 1]) * point
    forbidden = np.vstack([scene.markers, scene.writing])
    costs = (
        gap / point * 0.06
        + order * 0.04
        + np.minimum(hits(scene.strokes, boxes).sum(axis=0), 4) * 1.2
        + 3 * np.clip((gap - nearest) / point / 8 + 1, 0, 2)
        + 0.8 * segments_cross(leaders, scene.strokes).sum(axis=1)
        + HARD * outside
        + HARD * touches(boxes + pad, forbidden).sum(axis=1)
        + HARD * hits(leaders, np.vstack([scene.writing, foreign])).sum(axis=1)
    )
    return Candidates(boxes, leaders, costs)


def _boxes_around(anchor: Pixels, w: float, h: float, point: float) -> Pixels:
    step, angle = np.meshgrid(np.array(STEPS) * point, ANGLES, indexing="ij")
    across, up = np.cos(angle), np.sin(angle)
    x = anchor[0] + step * across + np.clip(across * 1.5, -1, 1) * w / 2 - w / 2
    y = anchor[1] + step * up + np.clip(up * 1.5, -1, 1) * h / 2 - h / 2
    return np.stack([x, y, x + w, y + h], axis=-1).reshape(-1, 4)


def _leaders(boxes: Pixels, anchor: Pixels, point: float) -> Pixels:
    near = np.clip(anchor, boxes[:, :2], boxes[:, 2:])
    lines = np.hstack([np.broadcast_to(anchor, near.shape), near])
    lines[distances(boxes, anchor) <= LEADER * point] = np.nan
    return lines


# --- The labels of one Axes: measured, placed by `solve`, and numbered if there is no room -------


@dataclass(eq=False)
class Label:
    """A point in data coordinates, the offset of its name's anchor, and its artists."""

    x: float
    y: float
    shift: tuple[float, float]
    text: str
    made: Annotation
    leader: Line2D
    shown: str = ""  # its text, or a number that the key below the Axes explains


class Placer(AtDraw):
    """Places the labels of one Axes each time that it is drawn; see `labels.place_labels`."""

    def __init__(self, ax: Axes) -> None:
        super().__init__(ax, self._place, zorder=-1)
        self._labels: list[Label] = []
        self._key: Annotation | None = None
        self._numbered: list[Label] = []  # those without room for their names
        self._inches: tuple[float, ...] = ()  # the figure's size at that time

    def add(self, x: float, y: float, text: str, shift: tuple[float, float]) -> Annotation:
        """Return the text of one more label, which is placed at the next drawing."""
        look = {"ha": "left", "va": "bottom", "zorder": 7, "color": PALETTE["ink"]}
        made = note(self.ax, text, (x, y), (0, 0), "label", path_effects=halo(), **look)
        made.set_in_layout(False)
        leader = loose_line(self.ax, PALETTE["muted"], lw=0.7, zorder=3.5)
        self._inches = ()
        self._labels.append(Label(x, y, shift, text, made, leader))
        return made

    def _place(self, renderer: Any) -> None:
        inches = tuple(figure_of(self.ax).get_size_inches())
        if self._inches != inches:
            self._inches, self._numbered = inches, []
        while True:  # repeat if a key appears or grows, since the Axes change their size
            for label in self._labels:
                label.shown = label.text
            for number, label in enumerate(self._numbered, 1):
                label.shown = str(number)
            self._show_key(renderer)
            groups = self._groups()
            costs, boxes = self._solve(renderer, groups)
            stuck = [group[0] for group, cost in zip(groups, costs, strict=True) if cost >= HARD]
            if not stuck or len(self._numbered) == len(self._labels):
                break
            self._number(groups, stuck)
        for group, box in zip(groups, boxes, strict=True):
            anchor, point = self._anchor(group[0]), point_of(self.ax)
            made, leader = group[0].made, group[0].leader
            start = self.ax.transData.transform((group[0].x, group[0].y))
            made.set_position(tuple((box[:2] - start) / point))
            made.set_multialignment("right" if box[2] <= anchor[0] else "left")
            near = np.clip(anchor, box[:2], box[2:])
            far = bool(np.hypot(*(near - anchor)) > LEADER * point)
            leader.set_data(*(np.stack([anchor, near]).T if far else ([], [])))
            for label in group[1:]:
                label.leader.set_data([], [])

    def _number(self, groups: list[list[Label]], stuck: list[Label]) -> None:
        """Number the labels that are stuck; if they already are, also the nearest other."""
        members = [label for group in groups if group[0] in stuck for label in group]
        more = [label for label in members if label not in self._numbered]
        if not more:
            named = [label for label in self._labels if label not in self._numbered]
            here = self._anchor(stuck[0])
            more = [min(named, key=lambda label: float(np.hypot(*(self._anchor(label) - here))))]
        numbered = [*self._numbered, *more]
        self._numbered = [label for label in self._labels if label in numbered]

    def _show_key(self, renderer: Any) -> None:
        entries = [f"{label.shown}: {label.text}" for label in self._numbered]
        text = wrapped(self.ax, entries, renderer)
        if self._key is None:
            look = {"xycoords": self.ax.xaxis.label, "annotation_clip": False}
            self._key = note(self.ax, "", (0.5, 0), (0, -4), "key", ha="center", va="top", **look)
        changed = text != self._key.get_text()
        self._key.set(text=text, visible=bool(text))
        if changed:
            lay_out(figure_of(self.ax))
            request_relayout(self.ax)

    def _anchor(self, label: Label) -> Pixels:
        moved = np.array(label.shift) * point_of(self.ax)
        return np.asarray(self.ax.transData.transform((label.x, label.y)) + moved)

    def _groups(self) -> list[list[Label]]:
        """Return the labels in groups of coinciding markers."""
        groups: list[list[Label]] = []
        for label in self._labels:
            here, near = self._anchor(label), SAME * point_of(self.ax)
            same = [g for g in groups if np.hypot(*(self._anchor(g[0]) - here)) < near]
            if same:
                same[0].append(label)
            else:
                groups.append([label])
        return groups

    def _solve(self, renderer: Any, groups: list[list[Label]]) -> _Outcome:
        point = point_of(self.ax)
        sizes = [self._size(renderer, group) for group in groups]
        markers, writing = obstacles(self.ax, renderer, [label.made for label in self._labels])
        scene = Scene(
            anchors=np.array([self._anchor(group[0]) for group in groups]),
            sizes=np.array(sizes),
            markers=markers,
            writing=writing,
            strokes=strokes_of(self.ax),
            frame=np.array(self.ax.bbox.extents) + np.array([3, 2, -6, -2]) * point,
            point=point,
        )
        return solve(scene)

    def _size(self, renderer: Any, group: list[Label]) -> Pixels:
        """Write a group's names into its first label; return their width and height."""
        for label in group:
            label.made.set_visible(label is group[0])
        names = [label.shown for label in group]
        group[0].made.set_text((", " if all(map(str.isdigit, names)) else "\n").join(names))
        return size_of(group[0].made, renderer)


def obstacles(ax: Axes, renderer: Any, own: list[Annotation]) -> tuple[Pixels, Pixels]:
    """Return the boxes that no label may touch: markers; and texts, the legend."""
    point = point_of(ax)
    markers: list[Any] = []
    for line in ax.lines:
        if line.get_visible() and has_marker(line) and line.get_markevery() is None:
            half = (line.get_markersize() + line.get_markeredgewidth()) / 2 * point
            centres = line.get_transform().transform(line.get_xydata())
            markers.extend(np.hstack([centres - half, centres + half]))
        if line.get_gid() == "arrow":
            x, y = line.get_transform().transform(line.get_xydata()).T
            steps = np.linspace(0, len(x) - 1, 9 * len(x))
            spots = np.stack([np.interp(steps, range(len(x)), xs) for xs in (x, y)], axis=-1)
            markers.extend(np.hstack([spots - 3 * point, spots + 3 * point]))
    writing: list[Any] = []
    for text in ax.texts:
        if text.get_visible() and text.get_text().strip() and text not in own:
            writing.extend(upright_boxes(corners_of(text, renderer)))
    legend = ax.get_legend()
    if legend:
        writing.append(legend.get_window_extent(renderer).extents)
    return np.array(markers).reshape(-1, 4), np.array(writing).reshape(-1, 4)


def strokes_of(ax: Axes) -> Pixels:
    """Return the segments (x0, y0, x1, y1) of the lines in an Axes, in pixels."""
    pieces = []
    for line in ax.lines:
        if line.get_gid() != "leader" and line.get_linestyle() != "None" and line.get_visible():
            xy = line.get_transform().transform(line.get_xydata())
            pieces.append(np.hstack([xy[:-1], xy[1:]]))
    return np.vstack(pieces) if pieces else np.empty((0, 4))


def wrapped(ax: Axes, entries: list[str], renderer: Any) -> str:
    """Return entries in lines that are no wider than the figure."""
    probe = Text(0, 0, "", fontsize=SMALL, figure=figure_of(ax))
    rows: list[str] = []
    for entry in entries:
        longer = f"{rows[-1]}    {entry}" if rows else entry
        probe.set_text(longer)
        fits = probe.get_window_extent(renderer).width < figure_of(ax).bbox.width * 0.9
        rows = [*rows[:-1], longer] if rows and fits else [*rows, entry]
    return "\n".join(rows)


# --- Public functions ----------------------------------------------------------------------------


def place_labels(
    ax: Axes, labels: Iterable[tuple[float, float, str]], *, shift: tuple[float, float] = (0, 0)
) -> list[Annotation]:
    """Put a text at each point so that no text covers a text, a marker or a legend.

    Places are computed each time that the figure is drawn. Those around the point are tried first,
    then farther ones with a thin leader; if there is still no room, points get numbers and a key
    below the axes. Lines are avoided if possible.

    Parameters
    ----------
    ax : Axes
    labels : sequence of (x, y, text)
        Points in data coordinates. Calls on one Axes add up.
    shift : (across, up)
        How far the points are moved, in 1/72 inch.

    Returns
    -------
    list of Annotation

    Raises
    ------
    BadType
        `ax` is not an Axes, or a label is not (x, y, text).

    Examples
    --------
    >>> from roofline_helpers.plot import lines
    >>> axes = lines([1, 10], {"N": [1, 10]})
    >>> [label.get_text() for label in place_labels(axes, [(2, 2, "here")])]
    ['here']
    """
    require(ax, Axes)
    triples = list(labels)
    for label in triples:
        if not (isinstance(label, tuple) and len(label) == 3 and isinstance(label[2], str)):
            raise BadType(f"a label is (x, y, text), got {label!r}")
    named = [label for label in triples if label[2]]
    if not named:
        return []
    known = [child for child in ax.get_children() if isinstance(child, Placer)]
    placer = known[0] if known else Placer(ax)
    return [placer.add(x, y, text, shift) for x, y, text in named]


# --- Names of lines that end at the right of the Axes --------------------------------------------


def name_at_margin(ax: Axes, entries: Sequence[tuple[float, str, str]]) -> None:
    """Name lines at the right of the Axes: (y where the line ends, name, colour).

    A thin leader goes from a line's end to its name. It has no marker, which would look like
    another data point.
    """
    look = {"va": "center", "xycoords": "axes fraction", "annotation_clip": False}
    texts = [note(ax, name, (1, 0.5), (18, 0), "margin", **look) for _, name, _ in entries]
    paths = [loose_line(ax, color, lw=1) for _, _, color in entries]

    def spread_names(renderer: Any) -> None:
        point = point_of(ax)
        ends = np.array([ax.transData.transform((1, y))[1] for y, _, _ in entries])
        height = max(text.get_window_extent(renderer).height for text in texts)
        ys = spread(ends, height * 1.2, ax.bbox.y0 + height / 2, ax.bbox.y1 - height / 2)
        right = ax.bbox.x1
        for text, path, end, y in zip(texts, paths, ends, ys, strict=True):
            text.set_position((18, (y - (ax.bbox.y0 + ax.bbox.y1) / 2) / point))
            path.set_data([right, right + 3 * point, right + 14 * point], [end, end, y])

    AtDraw(ax, spread_names, -5)
