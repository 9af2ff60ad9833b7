"""Names at points: placed so that none covers a text, a marker or a legend."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.text import Annotation, Text

from roofline_helpers._checks import BadType
from roofline_helpers.plot.geometry import corners_of, meet, touches
from roofline_helpers.plot.inputs import need
from roofline_helpers.plot.placer import Placer


def place_labels(
    ax: Axes, labels: Iterable[tuple[float, float, str]], *, avoid: Iterable[Artist] = ()
) -> list[Annotation]:
    """Put a text at each point so that no text covers a text, a marker or a legend.

    The places are found anew each time that the figure is drawn, so they also hold after a change
    of size or limits. Places around the point are tried first, then farther ones with a thin
    leader; where even that leaves no room, points get numbers and a key below the axes.

    Parameters
    ----------
    ax : Axes
        All texts, legends and markers in it are avoided, its lines where possible.
    labels : sequence of (x, y, text)
        Points in data coordinates. Calls on one Axes add up.
    avoid : sequence of artists
        What else to keep clear of.

    Returns
    -------
    list of Annotation
        One a label.

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
    need(ax, Axes)
    triples = list(labels)
    for label in triples:
        if not (isinstance(label, tuple) and len(label) == 3 and isinstance(label[2], str)):
            raise BadType(f"a label is (x, y, text), got {label!r}")
    return place(ax, triples, avoid=avoid)


def place(
    ax: Axes,
    labels: Iterable[tuple[float, float, str]],
    *,
    avoid: Iterable[Artist] = (),
    shift: tuple[float, float] = (0, 0),
) -> list[Annotation]:
    """Do what `place_labels` says, the points moved by `shift` (in points of 1/72 inch)."""
    placer = next((child for child in ax.get_children() if isinstance(child, Placer)), None)
    if placer is None:
        placer = Placer()
        placer.join(ax)
    made = [placer.add(ax, x, y, text, shift) for x, y, text in labels if text]
    placer.avoid.extend(avoid)
    return made


def text_overlaps(fig: Figure) -> list[tuple[str, str]]:
    """Return the pairs of visible texts of a figure whose boxes meet, as drawn.

    Tick labels, axis labels, titles, annotations and legends all count; a rotated text counts with
    its rotated box. An empty list is what every picture should give.

    Examples
    --------
    >>> from roofline_helpers.plot import lines
    >>> text_overlaps(lines([1, 10], {"N": [1, 10]}).figure)
    []
    """
    need(fig, Figure)
    fig.draw_without_rendering()
    texts = visible_texts(fig)
    if not texts:
        return []
    boxes = np.array([corners_of(text) for text in texts])
    outlines = np.hstack([boxes.min(axis=1), boxes.max(axis=1)])
    near = np.argwhere(np.triu(touches(outlines, outlines), 1))
    return [(texts[i].get_text(), texts[j].get_text()) for i, j in near if meet(boxes[i], boxes[j])]


def visible_texts(fig: Figure) -> list[Text]:
    """Return the texts that a figure shows: not the empty, the hidden, nor ticks out of range.

    As it was drawn last: which names there is room for is found when a figure is drawn.

    Examples
    --------
    >>> from roofline_helpers.plot import lines
    >>> "N" in [text.get_text() for text in visible_texts(lines([1, 10], {"N": [1, 10]}).figure)]
    True
    """
    unseen: set[Artist] = set()
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
