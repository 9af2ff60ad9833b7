"""What the model's claims rest on: files that were made once, and are made anew by the tests.

>>> residency()["v5e"]["512"] == residency()["v5e"]["256"] * 2  # the scores stay in VMEM
True
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from roofline_helpers import hardware, records
from roofline_helpers._checks import name_of

if TYPE_CHECKING:
    import pandas

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


def verdicts(program: str | None = None, chip: str | None = None) -> pandas.DataFrame:
    """Return the book's verdicts that depend on something, one row a chip and program.

    "at first" is the word, or the gain, under published ceilings, without a floor, everything
    travelling between kernels; "or" what other cases say (of a gain the least and the most), and
    "on" what it depends on, in the words of `verdicts.Case`.

    Parameters
    ----------
    program : str, optional
        Only programs whose name has this in it, for instance "matmul 600".
    chip : str, optional
        Only this chip's.

    Raises
    ------
    UnknownName
        No such chip.
    """
    import pandas

    rows = [
        row
        for row in load("verdicts")["depend"]
        if (program is None or program in row["program"])
        and (chip is None or row["chip"] == hardware.chip(chip).key)
    ]
    shown = [{**row, "or": ", ".join(row["or"]), "on": ", ".join(row["on"])} for row in rows]
    columns = ["program", "chip", "asked", "at first", "or", "on"]
    return pandas.DataFrame(shown, columns=columns).set_index("program")
