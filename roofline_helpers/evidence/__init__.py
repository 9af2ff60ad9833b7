"""What the model's claims rest on: kernels that others measured, files made once, verdicts.

`typical` says what measured kernels like yours reach, `laws` what was fitted to them; `files` are
claims made anew by the tests; `verdicts` hold what bounds a program against what could overturn it.
"""

from __future__ import annotations

from roofline_helpers.evidence.files import cycles, decode
from roofline_helpers.evidence.law import (
    COLLECTIVES,
    FASTEST,
    Errors,
    Law,
    NoData,
    by_law,
    every_law,
    laws,
    laws_of,
)
from roofline_helpers.evidence.tables import families, sources, table
from roofline_helpers.evidence.typical import Typical, typical
from roofline_helpers.evidence.verdicts import gain, verdict

__all__ = [
    "cycles",
    "decode",
    "COLLECTIVES",
    "FASTEST",
    "every_law",
    "Errors",
    "Law",
    "NoData",
    "by_law",
    "laws",
    "laws_of",
    "families",
    "sources",
    "table",
    "Typical",
    "typical",
    "gain",
    "verdict",
]
