"""The questions of the prose pages: ``{ask}`` puts them there, with what they unlock inside."""

from __future__ import annotations

import roofline_helpers as rh
from page_figures import first_kernels
from roofline_helpers.ask import Element, exercises, ledger, question

INSIDE = "(the content of the directive)"


def questions() -> dict[str, Element]:
    """Return the questions that a page may ask for, by name."""
    triad, matmul = first_kernels()
    return {
        "front-point": rh.lab.point("h100", 2, key="front-point"),
        "your-kernel": rh.lab.your_kernel(),
        "first-triad": question("first-triad", then=INSIDE, triad=triad.work),
        "first-matmul": question("first-matmul", then=INSIDE),
        "first-picture": question(
            "first-picture", then=INSIDE, triad=triad.work, matmul=matmul.work
        ),
        "first-measured": question(
            "first-measured",
            then=INSIDE,
            triad_efficiency=triad.least / triad.measured,
            matmul_efficiency=matmul.least / matmul.measured,
        ),
        "first-exercises": exercises("what-is-a-roofline"),
        "ledger": ledger(),
    }
