"""Predictions of a reader's own steps, from a file."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roofline_helpers.common.checks import BadValue, RooflineError, name_of
from roofline_helpers.validation.board import scoreboard
from roofline_helpers.validation.rivals import ratios, spread
from roofline_helpers.validation.steps import (
    SETTING,
    PublishedDecode,
    PublishedStep,
    published_decode,
    published_training,
)

if TYPE_CHECKING:
    import pandas

NEEDED = {
    "training": ("chip", "shape", "model", "batch", "seq", "mesh"),
    "decode": ("chip", "shape", "model", "batch", "context"),
}
ALLOWED = {
    "training": (
        *NEEDED["training"],
        *SETTING,
        *("id", "slices", "widths", "count", "seconds", "tflops", "tokens"),
    ),
    "decode": (*NEEDED["decode"], "id", "seconds"),
}
FEWEST = 10
"""Recipes of the board that a range needs."""


def predict(path: str | Path) -> pandas.DataFrame:
    """Return what is predicted of the steps in a file: one row each.

    A file is TOML, with the blocks ``[[row]]`` of `data/published`. A row has "chip", "shape"
    (number of GPUs, or a slice such as 4x4), "model", "batch" and, of training, "seq" and "mesh",
    else "context": a decode step, tensor-parallel over all chips. Whatever `training.step` takes
    may follow, and what was measured: "seconds" of a step, or "tokens" (a second) or "tflops" of a
    chip.

    Columns: "bound s", "predicted s" (by the laws of measured kernels where there are any), "low s"
    and "high s", between which eight of ten published steps of that kind would lie, "measured s"
    and "error"; missing where nothing was measured, or nothing like it is on the board.

    Raises
    ------
    RooflineError
        A file of another kind, or a row that can't be; the message names it.
    OSError
        No such file.

    Examples
    --------
    >>> predict("steps.toml")  # doctest: +SKIP
    """
    import pandas

    found = []
    for number, row in enumerate(_read(Path(path)), start=1):
        title = f"{path}, row {number}" + (f" ({row['id']})" if "id" in row else "")
        try:
            found.append(_predicted(_step({"id": f"row {number}", **row})))
        except (RooflineError, TypeError) as error:
            raise BadValue(f"{title}: {error}") from None
    if not found:
        raise BadValue(f"{path} has no row: blocks [[row]]")
    return pandas.DataFrame(found).set_index("row")


def _read(path: Path) -> list[dict[str, Any]]:
    try:
        data = tomllib.loads(path.read_text("utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise BadValue(f"{path} is no TOML: {error}") from None
    name_of("table of a file of steps", next(iter({*data} - {"row"}), "row"), ["row"])
    return list(data.get("row", []))


def _step(row: Mapping[str, Any]) -> PublishedStep | PublishedDecode:
    kind = "decode" if "context" in row and "seq" not in row else "training"
    for name in row:
        name_of(f"field of a {kind} step", name, ALLOWED[kind])
    missing = [name for name in NEEDED[kind] if name not in row]
    if missing:
        raise BadValue(
            f"{', '.join(missing)} missing: a {kind} step needs {', '.join(NEEDED[kind])}"
        )
    source = {"title": ""}
    if kind == "decode":
        return published_decode(source, {"seconds": None, "mean": None, **row})
    return published_training(source, {"count": "halved", **row})


@cache
def _spread(step: str, kind: str, chip: str) -> tuple[float | None, float | None]:
    """Return by what a predicted time is multiplied for a range; None where too little is known."""
    board = scoreboard(law=True)
    known = ratios(board[(board.step == step) & (board.kind == kind)])
    return spread(known, chip) if len(known) >= FEWEST else (None, None)


def _predicted(one: PublishedStep | PublishedDecode) -> dict[str, Any]:
    seconds = one.by_law.seconds
    low, high = _spread(one.what, one.kind, one.place.chip.key)
    said = isinstance(one, PublishedDecode) or bool(one.printed)
    measured = one.seconds if said else None
    return {
        "row": one.key,
        "bound s": one.published.least_seconds,
        "predicted s": seconds,
        "low s": low and low * seconds,
        "high s": high and high * seconds,
        "measured s": measured,
        "error": seconds / measured - 1 if measured else None,
    }
