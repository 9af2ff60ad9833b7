"""What prose pages draw, and the program of the front page: ``tools.site.pictures`` keeps both."""

from __future__ import annotations

import io
import os
import re
import tempfile
from contextlib import chdir, redirect_stdout
from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt

import roofline
import roofline_helpers as rh
from roofline.diagnosis import Explanation, ladder, load_explanation, pictures

ROOT = Path(__file__).resolve().parents[2]
EXPLAINED = ROOT / "book/explained.json"
HAND = "least time, counted by hand"
BYTES = "extra bytes, mostly copies of the KV cache"
KERNELS = "kernels slower than their roof"
REST = "all else: gaps between kernels, the host"
NAMES = {
    "counted by hand": HAND,
    "the compiled program needs more": BYTES,
    "ceilings as reached": "memory slower than its data sheet",
    "gaps between kernels": REST,
    "the host": REST,
    "nothing explains it": REST,
}
"""A bar's name in `explain`, and what the front page calls it; kernels share one bar."""


def program(page: str) -> str:
    """Return the first Python program on a page."""
    block = re.search(r"```python\n(.*?)```", (ROOT / page).read_text("utf-8"), re.DOTALL)
    assert block is not None, f"{page} has no program"
    return block[1]


def explained() -> Explanation:
    """Run the front page's program, in a folder of its own, and return what it explains.

    It keeps the record's day and how long compiling took then: those say nothing of the program.
    """
    names: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as folder, chdir(folder), redirect_stdout(io.StringIO()):
        exec(compile(program("index.md"), "step.py", "exec"), names)
        assert os.listdir() == ["why.html"]
    why = names["why"]
    assert isinstance(why, Explanation)
    kept = load_explanation(EXPLAINED)
    return replace(why, date=kept.date, compiling=kept.compiling)


def slow_step() -> Explanation:
    """Return what the front page explains: a decode step with its layers in a Python loop.

    The least time is the chapter's, by bandwidth alone: the record's has the floors of launches.
    """
    steps = ladder.committed()["decode"].select(batch=64, context=2048)
    why = next(step.why for step in steps if step.why is not None)
    return replace(why, hand=roofline.evidence.decode()["roof"]["64"]["published"])


def waterfall() -> dict[str, float]:
    """Return the steps from the least time to the clock's, in seconds."""
    steps: dict[str, float] = {}
    for bar in slow_step().waterfall:
        name = NAMES.get(bar.name, KERNELS)
        steps[name] = steps.get(name, 0.0) + bar.seconds
    return steps


def draw_waterfall() -> bytes:
    """Return the front page's picture as a PNG; each name stands above its bar."""
    rh.plot.use_style()
    figure, axes = plt.subplots(figsize=(4.6, 3.7), layout="none")
    figure.subplots_adjust(0, 0, 1, 1)
    wall, colour = slow_step().wall, rh.plot.PALETTE
    parts = {HAND: colour["series"][0], "measured": colour["muted"]}
    steps = [*waterfall().items(), ("measured", wall)]
    bars = [(name, seconds, parts.get(name, colour["lost"])) for name, seconds in steps]
    pictures.draw_bars(axes, bars, plt.rcParams["font.size"])
    axes.set_xlim(0, 1.2 * wall)
    axes.axis("off")
    written = io.BytesIO()
    figure.savefig(written, format="png", dpi=200)
    plt.close(figure)
    return written.getvalue()
