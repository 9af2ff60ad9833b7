"""What holds a drawn picture against the committed one notices what it is for."""

from __future__ import annotations

import functools
import io
from base64 import b64encode
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from page_figures import draw_waterfall
from tools import books
from tools.notebooks.pictures import THRESHOLD, changed, pixels, worst_block
from tools.site.pictures import DRAWN, copies


@functools.cache
def drawn(ridge: float = 300.0, label: float = 0.5, width: float = 7.0) -> bytes:
    """A small roofline, its ridge and its label where asked."""
    figure, axes = plt.subplots(figsize=(width, 4.5))
    intensity = np.logspace(-1, 5, 400)
    axes.loglog(intensity, np.minimum(1.0, intensity / ridge), linewidth=1.5)
    axes.text(label, 0.3, "memory-bound", transform=axes.transAxes)
    axes.set(xlabel="intensity (FLOP/byte)", ylabel="fraction of peak")
    written = io.BytesIO()
    figure.savefig(written, format="png", dpi=100)
    plt.close(figure)
    return written.getvalue()


def test_the_front_page_s_picture_is_drawn_now() -> None:
    with plt.rc_context():  # it sets the book's style
        left, right = pixels((books.ROOT / DRAWN).read_bytes()), pixels(draw_waterfall())
    assert left.shape == right.shape
    assert worst_block(left, right) <= THRESHOLD, "look, then `python -m tools.site.pictures`"


def test_copies_are_what_the_notebooks_have() -> None:
    for name, content in copies().items():
        same = (books.ROOT / name).read_bytes() == content
        assert same, f"{name}: run python -m tools.site.pictures"


def test_a_label_moved_by_two_pixels_is_caught() -> None:
    assert worst_block(pixels(drawn()), pixels(drawn(label=0.504))) > THRESHOLD


def test_a_missing_picture_another_size_and_another_line_are_caught() -> None:
    for shown in (alone, below_a_question):
        one = shown(drawn())
        assert changed(one, one) == []
        assert "1 pictures are committed, the cell draws 0" in changed(one, [])
        assert "700 × 450 pixels, now 800 × 450" in changed(one, shown(drawn(width=8.0)))[0]
        assert "differs by" in changed(one, shown(drawn(ridge=309.0)))[0]
        assert changed(one, shown(drawn(ridge=309.0)), compare=False) == []


def alone(png: bytes) -> list[Any]:
    """A cell's outputs: this picture."""
    return [{"data": {"image/png": b64encode(png).decode()}}]


def below_a_question(png: bytes) -> list[Any]:
    """A cell's outputs: a question with this picture below it."""
    html = f'<img src="data:image/png;base64,{b64encode(png).decode()}" alt="a">'
    return [{"data": {"text/html": html}}]
