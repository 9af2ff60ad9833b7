"""Labels at points, and the check for overlaps that pictures are held to."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from plot_suite import TWINS, real, shown, text_overlaps

from roofline_helpers import plot
from roofline_helpers.plot.labels import spread

pytestmark = pytest.mark.usefixtures("own_style")


@pytest.mark.parametrize(
    ("wanted", "placed"),
    [
        ([1, 9, 5], [1, 9, 5]),  # apart already
        ([10, 10, 13.5], [9, 11, 13.5]),
        ([0, 9, 1], [-0.5, 9, 1.5]),
        ([5, 3, 4], [6, 2, 4]),
        ([19, 20], [18, 20]),  # the end is at 20
    ],
)
def test_names_are_spread_to_the_nearest_places_in_their_order(wanted, placed):
    assert spread(np.array(wanted, float), 2, -20, 20).tolist() == placed


# --- labels --------------------------------------------------------------------------------------


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
    assert text_overlaps(fig) == []
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
