"""Every picture can be read, at the width of a page and of a phone."""

import itertools

import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest
from matplotlib.text import Text
from plot_suite import PICTURES, SIZES, text_overlaps, visible_texts

from roofline_helpers import plot

pytestmark = pytest.mark.usefixtures("own_style")


@pytest.mark.parametrize("name", PICTURES)
def test_picture_can_be_read(name):
    plot.use_style()
    unread = {size: problems(name, inches) for size, inches in SIZES.items()}
    assert not any(unread.values()), unread


def problems(name, inches):
    """What can't be read in a picture of this size."""
    fig, ax = plt.subplots(figsize=inches)
    assert PICTURES[name](ax) is ax
    fig.set_dpi(200)  # as in the sharp ("retina") picture
    faults = [f"{text!r} on {other!r}" for text, other in text_overlaps(fig)]
    frame = fig.bbox
    texts = visible_texts(fig)
    for text in texts:
        box = Text.get_window_extent(text)
        inside = box.x0 >= frame.x0 - 1 and box.x1 <= frame.x1 + 1
        if not (inside and box.y0 >= frame.y0 - 1 and box.y1 <= frame.y1 + 1):
            faults.append(f"{text.get_text()!r} leaves the figure")
        if text.get_fontsize() < 9:
            faults.append(f"{text.get_text()!r} is smaller than 9 points")
    markers = [
        line.get_transform().transform(line.get_xydata())[0]
        for line in ax.lines
        if (line.get_gid() or "").startswith(("job:", "achieved:", "ridge"))
        and line.get_marker() != "None"
    ]
    labels = [t for t in ax.texts if t.get_gid() == "label" and t.get_visible()]
    for text, spot in itertools.product(labels, markers):
        if Text.get_window_extent(text).contains(*spot):
            faults.append(f"{text.get_text()!r} on a marker")
    return faults


def test_pictures_make_their_own_axes_and_leave_the_defaults_alone():
    before = dict(mpl.rcParams)
    overlaps = {
        name: text_overlaps(PICTURES[name](None).figure)
        for name in ("roofline, one job", "compare three", "fusion", "hierarchical", "lines",
                     "traffic")
    }  # fmt: skip
    assert not any(overlaps.values()), overlaps
    assert dict(mpl.rcParams) == before
