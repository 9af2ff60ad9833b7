"""What holds a drawn picture against the committed one notices what it is for."""

from __future__ import annotations

import matplotlib.pyplot as plt

from page_figures import draw_waterfall
from tools import books
from tools.notebooks.pictures import THRESHOLD, pixels, worst_block
from tools.site.pictures import DRAWN, copies


def test_the_front_page_s_picture_is_drawn_now() -> None:
    with plt.rc_context():  # it sets the book's style
        left = pixels((books.ROOT / DRAWN).read_bytes())
        right = pixels(draw_waterfall())
    assert left.shape == right.shape
    assert worst_block(left, right) <= THRESHOLD, "look, then `python -m tools.site.pictures`"


def test_copies_are_what_the_notebooks_have() -> None:
    for name, content in copies().items():
        same = (books.ROOT / name).read_bytes() == content
        assert same, f"{name}: run python -m tools.site.pictures"
