"""The instrument for a reader's own kernel: counts, shapes, or the text of a compiled program."""

from __future__ import annotations

from typing import Any

from roofline_helpers import benchmarks, verdicts, work
from roofline_helpers.ask import Element
from roofline_helpers.hardware import chip as chip_of
from roofline_helpers.lab.instruments import start_of
from roofline_helpers.lab.shared import instrument, matmul_row

START: dict[str, Any] = {
    **{"peak": 1000, "memory": 3000, "flops": 1e12, "bytes": 1e10},
    **{"m": 512, "n": 8192, "k": 8192},
    **{"elements": 2**28, "reads": 2, "writes": 1, "each": 1},
    **{"batch": 4, "heads": 32, "kvHeads": 8, "queries": 2048, "keys": 2048, "dim": 128},
    "causal": "yes",
}
"""What the fields begin with, those of every kind of kernel."""


def your_kernel(
    chip: Any = "h100",
    dtype: Any = None,
    *,
    key: str = "your-kernel",
    title: str = "Your chip, your kernel",
) -> Element:
    """Return an instrument: what a reader pastes under the roof of any chip, with a verdict.

    Takes FLOPs and bytes, the shape of a matmul, of an elementwise kernel or of attention, or the
    text of a compiled program, which is read in the page. The verdict says on what it depends.

    Parameters
    ----------
    chip, dtype, key, title : optional
        As in `point`.

    Raises
    ------
    BadType, BadValue, UnknownName
        No such chip or type, or a changed chip.

    Examples
    --------
    >>> your_kernel("v6e").kind
    'your-kernel'
    """
    start = {**START, **start_of(chip, dtype), "kind": "matmul"}
    roof = chip_of(chip).roofline(start["dtype"])
    job = work.matmul(START["m"], START["n"], START["k"], start["dtype"])
    verdict = verdicts.verdict(job, chip, name=f"{START['m']} × {START['n']} × {START['k']} matmul")
    rows = [matmul_row(roof, start["dtype"], side) for side in (128, 512, 1024, 2048, 8192)]
    floors = {"tpu": verdicts.assumed_floor("tpu"), "other": verdicts.assumed_floor("gpu")}
    plain = (
        f"{repr(verdict).strip('<>')}. Square ones, N × N × N, on {roof.name}, published ceilings"
    )
    more = {"floors": floors, "laws": _laws()}
    return instrument("your-kernel", key, title, start, plain, rows, bundle="paste", **more)


def _laws() -> dict[str, dict[str, list[float]]]:
    """Return the constants of each chip's law of matmuls by data type, shapes and median error."""
    found: dict[str, dict[str, list[float]]] = {}
    for law in benchmarks.laws_of("matmul"):
        numbers = [law.start, law.compute, law.memory, law.corner, law.step]
        found.setdefault(law.chip, {})[law.dtype] = [*numbers, law.shapes, law.law.median]
    return found
