"""The evidence of the model's claims: kernels that others measured, files made once, verdicts.

`typical` says what measured kernels like yours reach, `laws` what was fitted to them; `files` are
claims made anew by the tests; `verdicts` hold what bounds a program against what could overturn it.
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
