"""The questions of the prose pages: ``{ask}`` puts them there."""

from __future__ import annotations

import roofline_helpers as rh
from roofline_helpers.pages.element import Element
from roofline_helpers.pages.questions import ledger
from roofline_helpers.pages.riddle import riddle


def questions() -> dict[str, Element]:
    """Return the questions that a page may ask for, by name."""
    return {
        "front-point": rh.pages.point("h100", 64, key="front-point"),
        "your-kernel": rh.pages.instruments.your_kernel(),
        "ledger": ledger(),
        "decode-riddle": riddle(),
    }
