"""What the model's claims rest on: files that were made once, and are made anew by the tests.

>>> residency()["v5e"]["512"] == residency()["v5e"]["256"] * 2  # the scores stay in VMEM
True
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from roofline_helpers import records
from roofline_helpers._checks import name_of

if TYPE_CHECKING:
    pass

SCHEMA = "roofline_helpers.evidence/1"
"""What each file says of itself."""


def load(name: str) -> dict[str, Any]:
    """Return a file of evidence: "residency", "cycles" or "verdicts".

    Raises
    ------
    UnknownName, BadType
        No such file.
    BadRecord
        A damaged one.
    """
    there = records.files(records.committed("evidence"))
    return records.load(there[name_of("file of evidence", name, there)], SCHEMA)


def residency() -> Mapping[str, Mapping[str, int]]:
    """Return the bytes that cross HBM in compiled attention, by chip and length.

    Plain JAX, [4, 32, length, 64] in bf16, for one device of each TPU; `load` has the versions.
    """
    moved: Mapping[str, Mapping[str, int]] = load("residency")["hbm_bytes"]
    return moved
