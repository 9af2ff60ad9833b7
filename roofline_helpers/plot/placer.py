"""The labels of one Axes: measured, placed by `solver`, and numbered where there is no room."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.text import Annotation, Text

from roofline_helpers.plot.canvas import AtDraw, figure_of, has_marker, lay_out, loose_line
from roofline_helpers.plot.geometry import Pixels, corners_of, upright_boxes
from roofline_helpers.plot.solver import HARD, LEADER, SAME, Outcome, Scene, solve
from roofline_helpers.plot.style import PALETTE, SMALL, halo


@dataclass(eq=False)
class Label:
    """A point in data coordinates, how far its name's anchor is from it, and its artists."""

    x: float
    y: float
    shift: tuple[float, float]
    text: str
    made: Annotation
    leader: Line2D


class Placer(AtDraw):
    """Places the labels of one Axes each time that it is drawn; see `labels.place_labels`."""

    def __init__(self) -> None:
        super().__init__(self._place, zorder=-1)
        self.avoid: list[Artist] = []
        self._labels: list[Label] = []
        self._key: Annotation | None = None
        self._numbered: list[int] = []  # labels for whose names there is no room
        self._inches: tuple[float, ...] = ()  # the figure's size for which that holds
        self._solved_for: tuple[bytes, ...] = ()  # what was solved last, and how
        self._solved = Outcome(np.empty(0), np.empty((0, 4)))

    def add(
        self, ax: Axes, x: float, y: float, text: str, shift: tuple[float, float]
    ) -> Annotation:
        """Return the text of one more label, which is placed at the next drawing."""
        made = ax.annotate(text, (x, y), (0, 0), textcoords="offset points", fontsize=SMALL,
                           ha="left", va="bottom", zorder=7, color=PALETTE["ink"],
                           path_effects=halo(), gid="label")  # fmt: skip
        made.set_in_layout(False)
        leader = loose_line(ax, PALETTE["muted"], lw=0.7, zorder=3.5)
        self._inches = ()
        self._labels.append(Label(x, y, shift, text, made, leader))
        return made

    def _place(self, renderer: Any) -> None:
        ax = self.axes
        if not self._labels or not isinstance(ax, Axes):
            return
        inches = tuple(figure_of(ax).get_size_inches())
        if self._inches != inches:
            self._inches, self._numbered = inches, []
        while True:  # again when a key comes or grows, and the Axes change their size
            texts = [label.text for label in self._labels]
            for number, i in enumerate(self._numbered, 1):
                texts[i] = str(number)
            entries = [f"{texts[i]}: {self._labels[i].text}" for i in self._numbered]
            if self._show_key(ax, wrapped(ax, entries, renderer)):
                lay_out(ax)
            groups = self._groups(ax)
            costs, places = self._solve(ax, renderer, groups, texts)
            stuck = [group[0] for group, cost in zip(groups, costs, strict=True) if cost >= HARD]
            if not stuck or len(self._numbered) == len(self._labels):
                break
            self._number(ax, groups, stuck)
        point = figure_of(ax).dpi / 72
        for group, box in zip(groups, places, strict=True):
            anchor = self._anchor(ax, group[0])
            made, leader = group[0].made, group[0].leader
            start = ax.transData.transform((group[0].x, group[0].y))
            made.set_position(tuple((box[:2] - start) / point))
            made.set_multialignment("right" if box[2] <= anchor[0] else "left")
            near = np.clip(anchor, box[:2], box[2:])
            far = bool(np.hypot(*(near - anchor)) > LEADER * point)
            leader.set_data(*(np.stack([anchor, near]).T if far else ([], [])))
            for label in group[1:]:
                label.leader.set_data([], [])

    def _number(self, ax: Axes, groups: list[list[Label]], stuck: list[Label]) -> None:
        """Give numbers to the labels that are stuck; if they have them, to their neighbours too."""
        named = [i for i in range(len(self._labels)) if i not in self._numbered]
        members = [label for group in groups if group[0] in stuck for label in group]
        more = [i for i in named if self._labels[i] in members]
        if not more:
            here = self._anchor(ax, stuck[0])
            gaps = [np.hypot(*(self._anchor(ax, self._labels[i]) - here)) for i in named]
            more = [named[int(np.argmin(gaps))]]
        self._numbered = sorted([*self._numbered, *more])

    def _show_key(self, ax: Axes, text: str) -> bool:
        """Write the key below the axis label; return whether it has changed."""
        if self._key is None:
            self._key = ax.annotate("", (0.5, 0), (0, -4), xycoords=ax.xaxis.label, fontsize=SMALL,
                                    textcoords="offset points", ha="center", va="top",
                                    annotation_clip=False, gid="key")  # fmt: skip
        changed = text != self._key.get_text()
        self._key.set(text=text, visible=bool(text))
        return changed

    def _anchor(self, ax: Axes, label: Label) -> Pixels:
        moved = np.array(label.shift) * figure_of(ax).dpi / 72
        return np.asarray(ax.transData.transform((label.x, label.y)) + moved)

    def _groups(self, ax: Axes) -> list[list[Label]]:
        """Return the labels, those of markers that lie on each other together."""
        groups: list[list[Label]] = []
        for label in self._labels:
            here = self._anchor(ax, label)
            near = SAME * figure_of(ax).dpi / 72
            for group in groups:
                if np.hypot(*(self._anchor(ax, group[0]) - here)) < near:
                    group.append(label)
                    break
            else:
                groups.append([label])
        return groups

    def _solve(
        self, ax: Axes, renderer: Any, groups: list[list[Label]], texts: list[str]
    ) -> Outcome:
        """Return the cost and the box of each group's names; as before if nothing has moved."""
        point = figure_of(ax).dpi / 72
        sizes = self._sizes(renderer, groups, texts)
        own = [label.made for label in self._labels]
        markers, writing = obstacles(ax, renderer, self.avoid, own, point)
        scene = Scene(
            anchors=np.array([self._anchor(ax, group[0]) for group in groups]),
            sizes=np.array(sizes),
            markers=markers,
            writing=writing,
            strokes=strokes_of(ax),
            frame=np.array(ax.bbox.extents) + np.array([2, 2, -2, -2]) * point,
            point=point,
        )
        if scene.key() != self._solved_for:
            self._solved_for, self._solved = scene.key(), solve(scene)
        return self._solved

    def _sizes(self, renderer: Any, groups: list[list[Label]], texts: list[str]) -> list[Pixels]:
        """Write each group's names into its first label; return their widths and heights."""
        shown = dict(zip(map(id, self._labels), texts, strict=True))
        sizes = []
        for group in groups:
            for label in group:
                label.made.set_visible(label is group[0])
            made = group[0].made
            names = [shown[id(label)] for label in group]
            made.set_text((", " if all(map(str.isdigit, names)) else "\n").join(names))
            sizes.append(np.asarray(Text.get_window_extent(made, renderer).size))
        return sizes


def obstacles(
    ax: Axes, renderer: Any, avoid: Iterable[Artist], own: list[Annotation], point: float
) -> tuple[Pixels, Pixels]:
    """Return the boxes that no label may touch: markers; and texts, legends, `avoid`."""
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
    for artist in [*avoid, *([legend] if legend else [])]:
        writing.append(artist.get_window_extent(renderer).extents)
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
