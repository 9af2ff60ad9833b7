"""The questions of the prose pages: ``{ask}`` puts them there."""

from __future__ import annotations

import roofline_helpers as rh
from page_figures import first_kernels
from roofline_helpers.ask import Element, exercises, ledger, question


def questions() -> dict[str, Element]:
    """Return the questions that a page may ask for, by name."""
    triad, matmul = first_kernels()
    vector, matrix = (rh.chip("h100").roofline(dtype) for dtype in ("fp32", "bf16"))
    v5e = rh.chip("v5e").roofline("bf16")
    return {
        "front-point": rh.lab.point("h100", 2, key="front-point"),
        "your-kernel": rh.lab.your_kernel(),
        "first-triad": question(
            "first-triad", vector=vector, times=vector.ridge / triad.work.intensity
        ),
        "first-matmul": question("first-matmul", times=matmul.work.intensity / matrix.ridge),
        "first-picture": question(
            "first-picture",
            triad=triad.work,
            matmul=matmul.work,
            vector=vector,
            matrix=matrix,
        ),
        "first-measured": question(
            "first-measured",
            near=triad.least / triad.measured,
            far=matmul.least / matmul.measured,
        ),
        "first-exercises": exercises(
            "what-is-a-roofline",
            v5e=v5e,
            attainable=v5e.attainable(100),
            share=100 * v5e.mfu(v5e.attainable(100)),
        ),
        "ledger": ledger(),
    }
