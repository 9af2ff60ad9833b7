"""Where names go: each takes the cheapest place around its point, in turn, in several orders.

All names have the same candidate places around their points, nearest first. A place costs its
distance, the lines that it covers, and doubt about whose name it is; places that leave the frame
or meet another text or a marker cost more than any that don't (`HARD`). The cheapest outcome of
all orders counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from roofline_helpers.plot.geometry import (
    Pixels,
    crossings,
    distances,
    hits,
    segments_cross,
    touches,
)

STEPS = (7.0, 10.0, 14.0, 20.0, 28.0, 38.0, 50.0, 66.0, 86.0, 110.0, 140.0, 180.0)
"""Distances from the point that are tried, in points of 1/72 inch."""

ANGLES = np.deg2rad([135, 315, 90, 45, 270, 225, 0, 180, 113, 67, 158, 293, 338, 22, 202, 247])
"""Directions that are tried, the best liked first."""

LEADER = 13.0
"""Points between anchor and name from which a leader is drawn."""

SAME = 4.0
"""Points within which markers count as one: their names are stacked."""

HARD = 1e3
"""What a place costs that must not be taken."""

MANY = 24
"""Names above which fewer orders are tried: one takes time with their square."""


@dataclass(frozen=True)
class Scene:
    """What is to be placed and what is to be kept clear of, in pixels.

    Parameters
    ----------
    anchors, sizes : array [names, 2]
        The points, and width and height of their names.
    markers, writing : array [boxes, 4]
        What no name may cover. A leader may leave the marker that it comes from.
    strokes : array [segments, 4]
        Lines, which are better left uncovered.
    frame : array [4]
        The box that names must stay in.
    point : float
        Pixels of 1/72 inch.
    """

    anchors: Pixels
    sizes: Pixels
    markers: Pixels
    writing: Pixels
    strokes: Pixels
    frame: Pixels
    point: float

    def key(self) -> tuple[bytes, ...]:
        """Return what two scenes share if the same solution fits both."""
        arrays = (
            self.anchors,
            self.sizes,
            self.markers,
            self.writing,
            self.strokes,
            self.frame,
        )
        return tuple(np.round(each, 6).tobytes() for each in arrays)


class Places(NamedTuple):
    """The candidate places of one name: their boxes, the leaders to them (NaN: none), the costs."""

    boxes: Pixels
    leaders: Pixels
    costs: Pixels


class Outcome(NamedTuple):
    """What each name has paid, and the box that it got."""

    costs: Pixels
    boxes: Pixels


def solve(scene: Scene) -> Outcome:
    """Return the cheapest outcome of all orders that are tried."""
    anchors = scene.anchors
    places = [_places(scene, n) for n in range(len(anchors))]
    x = anchors[:, 0]
    crowd = [np.sum(np.hypot(*(anchors - a).T) < 60 * scene.point) for a in anchors]
    orders = (np.arange(len(x)), np.argsort(x), np.argsort(-x), np.argsort(crowd)[::-1])
    tries = len(anchors) if len(anchors) <= MANY else 8
    outcomes: dict[tuple[int, ...], Outcome] = {}
    for first in orders:
        order = tuple(map(int, first))
        for _ in range(tries):  # names that got no place go first the next time
            if order not in outcomes:  # orders come round again
                outcomes[order] = greedy(order, places, scene.point)
            stuck = [i for i in order if outcomes[order].costs[i] >= HARD]
            if not stuck:
                break
            order = (*stuck, *(i for i in order if i not in stuck))
    return min(outcomes.values(), key=lambda outcome: float(outcome.costs.sum()))


def greedy(order: Sequence[int], places: Sequence[Places], point: float) -> Outcome:
    """Give each name, in this order, the cheapest place that is left."""
    taken = np.empty((0, 4))
    leads = np.empty((0, 4))
    boxes = np.zeros((len(places), 4))
    paid = np.zeros(len(places))
    pad = np.array([-2, -1, 2, 1]) * point
    for i in order:
        own = places[i]
        cost = own.costs + HARD * (
            touches(own.boxes + pad, taken).sum(axis=1)
            + hits(own.leaders, taken).sum(axis=1)
            + crossings(leads, own.boxes)
            + segments_cross(own.leaders, leads).sum(axis=1)
        )
        best = int(np.argmin(cost))
        paid[i], boxes[i] = cost[best], own.boxes[best]
        taken = np.vstack([taken, own.boxes[best]])
        if not np.isnan(own.leaders[best]).any():
            leads = np.vstack([leads, own.leaders[best]])
    return Outcome(paid, boxes)


def _places(scene: Scene, n: int) -> Places:
    """Return the places of one name and what each costs, whatever the other names do."""
    anchor, (w, h), point, frame = scene.anchors[n], scene.sizes[n], scene.point, scene.frame
    boxes, order = _around(anchor, w, h, point)
    slide = np.clip(boxes[:, 0], frame[0], max(frame[0], frame[2] - w)) - boxes[:, 0]
    boxes[:, [0, 2]] += slide[:, None]
    outside = ((boxes[:, :2] < frame[:2]) | (boxes[:, 2:] > frame[2:])).any(axis=1)
    gap = distances(boxes, anchor)
    spots = np.vstack([scene.anchors, (scene.markers[:, :2] + scene.markers[:, 2:]) / 2])
    others = spots[np.hypot(*(spots - anchor).T) > SAME * point]
    nearest = np.min([distances(boxes, a) for a in others], axis=0, initial=np.inf)
    leaders = _leaders(boxes, anchor, point)
    foreign = scene.markers
    if len(foreign):
        foreign = foreign[distances(foreign, anchor) > 0]
    pad = np.array([-1, -1, 1, 1]) * point
    forbidden = np.vstack([scene.markers, scene.writing])
    costs = (
        gap / point * 0.06
        + order * 0.04
        + np.minimum(crossings(scene.strokes, boxes), 4) * 1.2
        + 3 * np.clip((gap - nearest) / point / 8 + 1, 0, 2)
        + 0.8 * segments_cross(leaders, scene.strokes).sum(axis=1)
        + HARD * outside
        + HARD * touches(boxes + pad, forbidden).sum(axis=1)
        + HARD * hits(leaders, np.vstack([scene.writing, foreign])).sum(axis=1)
    )
    return Places(boxes, leaders, costs)


def _around(anchor: Pixels, w: float, h: float, point: float) -> tuple[Pixels, Pixels]:
    """Return the boxes around a point, and the rank of each one's direction."""
    step, angle = np.meshgrid(np.array(STEPS) * point, ANGLES, indexing="ij")
    across, up = np.cos(angle), np.sin(angle)
    x = anchor[0] + step * across + np.clip(across * 1.5, -1, 1) * w / 2 - w / 2
    y = anchor[1] + step * up + np.clip(up * 1.5, -1, 1) * h / 2 - h / 2
    boxes = np.stack([x, y, x + w, y + h], axis=-1).reshape(-1, 4)
    return boxes, np.tile(np.arange(len(ANGLES), dtype=float), len(STEPS))


def _leaders(boxes: Pixels, anchor: Pixels, point: float) -> Pixels:
    near = np.clip(anchor, boxes[:, :2], boxes[:, 2:])
    lines = np.hstack([np.broadcast_to(anchor, near.shape), near])
    lines[distances(boxes, anchor) <= LEADER * point] = np.nan
    return lines
