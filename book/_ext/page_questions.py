"""The questions of the prose pages: ``{ask}`` puts them there, with what they unlock inside."""

from __future__ import annotations

import roofline_helpers as rh
from roofline_helpers.ask import Element, exercises, ledger, question

INSIDE = "(the directive's content)"


def questions() -> dict[str, Element]:
    """Return the questions that a page may ask for, by name."""
    _, additions, adding, moving = addition()
    return {
        "front-chain": rh.lab.chain("h100", key="front-chain", title="Fuse it yourself"),
        "first-add": question(
            "first-add", then=INSIDE, additions=additions, adding=adding, moving=moving
        ),
        "first-matmul": question("first-matmul", then=INSIDE),
        "first-exercises": exercises("what-is-a-roofline"),
        "ledger": ledger(),
    }


def addition() -> tuple[rh.Work, float, float, float]:
    """Return chapter 1's vector addition, and an H100's additions/s and seconds for it.

    The seconds of its arithmetic come before those of its bytes.
    """
    roof = rh.chip("h100").roofline("fp32")
    add = rh.work.add(10**9, "fp32")
    rate = roof.peak / 2  # the peak counts a multiply-add as two
    return add, rate, float(add.flops / rate), float(add.bytes / roof.bandwidth)
