"""Boxes and segments in pixels: which meet, and how to keep them apart.

A box is (x0, y0, x1, y1), a segment likewise from one end to the other; several are rows of an
array.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
from matplotlib.text import Annotation, Text
from numpy.typing import NDArray

Pixels: TypeAlias = NDArray[np.float64]
"""Coordinates in pixels."""


def touches(a: Pixels, b: Pixels) -> NDArray[np.bool_]:
    """Return which boxes of `a` (rows) meet which of `b` (columns)."""
    a, b = a[:, None], b[None]
    overlap = (a[..., :2] < b[..., 2:]) & (b[..., :2] < a[..., 2:])
    return np.asarray(overlap.all(axis=-1))


def distances(boxes: Pixels, point: Pixels) -> Pixels:
    """Return the distance of each box from a point: 0 inside."""
    near = np.clip(point, boxes[:, :2], boxes[:, 2:])
    return np.asarray(np.hypot(*(near - point).T))


def hits(segments: Pixels, boxes: Pixels) -> NDArray[np.bool_]:
    """Return which segments (rows) pass through which boxes (columns): the slab method."""
    start, step = segments[:, None, :2], (segments[:, 2:] - segments[:, :2])[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        one, two = (boxes[None, :, :2] - start) / step, (boxes[None, :, 2:] - start) / step
    nearer, farther = np.fmin(one, two), np.fmax(one, two)
    enter = np.fmax(nearer[..., 0], nearer[..., 1])
    leave = np.fmin(farther[..., 0], farther[..., 1])
    return np.asarray((enter < leave) & (leave > 0) & (enter < 1))


def crossings(segments: Pixels, boxes: Pixels) -> Pixels:
    """Return how many segments pass through each box."""
    return np.asarray(hits(segments, boxes).sum(axis=0), dtype=float)


def segments_cross(a: Pixels, b: Pixels) -> NDArray[np.bool_]:
    """Return which segments of `a` (rows) cross which of `b` (columns)."""

    def side(line: Pixels, point: Pixels) -> Pixels:
        along, to = line[..., 2:] - line[..., :2], point - line[..., :2]
        return np.asarray(np.sign(along[..., 0] * to[..., 1] - along[..., 1] * to[..., 0]))

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
    box = Text.get_window_extent(text, renderer)
    # turning a box leaves the centre of its outline in place
    centre = (np.asarray(box.min) + np.asarray(box.max)) / 2
    if angle % 90:
        text.set_rotation(0)
        box = Text.get_window_extent(text, renderer)
        text.set_rotation(angle)
        turn = np.deg2rad(angle)
    else:
        turn = 0.0
    half = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]]) * box.size / 2
    matrix = np.array([[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]])
    return np.asarray(centre + half @ matrix)


def upright_boxes(corners: Pixels) -> list[Pixels]:
    """Return upright boxes that cover a turned one."""
    (a, b, _, d) = corners
    along, up = b - a, d - a
    count = max(1, math.ceil(np.hypot(*along) / max(np.hypot(*up), 1)))
    if abs(along[0]) < 1e-6 or abs(along[1]) < 1e-6:
        count = 1
    pieces = []
    for i in range(count):
        piece = [a + along * i / count + s * along / count + t * up for s in (0, 1) for t in (0, 1)]
        pieces.append(np.hstack([np.min(piece, axis=0), np.max(piece, axis=0)]))
    return pieces


def meet(a: Pixels, b: Pixels) -> bool:
    """Return whether two turned boxes meet: no edge direction separates them."""
    for box in (a, b):
        for edge in (box[1] - box[0], box[3] - box[0]):
            one, two = a @ edge, b @ edge
            slack = 1e-6 * float(np.hypot(*edge)) + 1e-9
            if bool(one.max() <= two.min() + slack) or bool(two.max() <= one.min() + slack):
                return False
    return True


def spread(wanted: Pixels, gap: float, low: float, high: float) -> Pixels:
    """Return the places nearest to those wanted, in the same order, at least `gap` apart."""
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
