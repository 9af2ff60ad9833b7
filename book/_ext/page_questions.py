"""The questions of the prose pages: ``{ask}`` puts them there."""

from roofline.labs.judging import good_time
from roofline.labs.mfu import training_mfu
from roofline.labs.riddle import riddle
from roofline_helpers import pages
from roofline_helpers.pages.element import Element
from roofline_helpers.pages.questions import ledger


def questions() -> dict[str, Element]:
    """Return the questions that a page may ask for, by name."""
    return {
        "front-point": pages.point("h100", 64, key="front-point"),
        "your-kernel": good_time(),
        "mfu": training_mfu(),
        "ledger": ledger(),
        "decode-riddle": riddle(),
    }
