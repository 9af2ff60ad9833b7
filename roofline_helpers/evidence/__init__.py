"""Evidence for the model's claims: kernels that others measured, recorded files, verdicts.

`typical` gives the rates of measured kernels like yours, `laws` the time models fitted to them.
`files` are recorded results that tests reproduce. `verdicts` name the bound of a program, and the
assumptions that could change it.
"""

from __future__ import annotations

from roofline_helpers.evidence.files import cycles, decode
from roofline_helpers.evidence.law import NoData, laws, laws_of
from roofline_helpers.evidence.tables import families, table
from roofline_helpers.evidence.typical import typical
from roofline_helpers.evidence.verdicts import gain, verdict

__all__ = [
    "laws_of",
    "cycles",
    "decode",
    "NoData",
    "laws",
    "families",
    "table",
    "typical",
    "gain",
    "verdict",
]
