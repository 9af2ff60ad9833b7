"""Every prediction of the scoreboard as it was last accepted, so that a diff shows what changes.

    python -m tools.evidence.predictions             say which differ
    python -m tools.evidence.predictions --update    write tests/data/predictions.csv anew

One line a row of the scoreboard, seconds in ten digits. A change of the model that moves a
prediction is meant or it isn't; `tests/package/test_published_steps.py` makes somebody say so.
"""

from __future__ import annotations

import csv
import math
import sys

import roofline_helpers as rh
from tools import books

KEPT = books.ROOT / "tests/data/predictions.csv"
COLUMNS = ("bound s", "reached s", "compiled s", "rule of thumb s", "mlsysim s")
CLOSE = 1e-6
"""Share by which a prediction may differ from the one that was accepted."""

Predictions = dict[str, dict[str, float]]


def now() -> Predictions:
    """Return what is predicted now, by row and column; what isn't predicted is left out."""
    board = rh.scoreboard()
    return {
        str(key): {name: float(row[name]) for name in COLUMNS if not math.isnan(row[name])}
        for key, row in board[list(COLUMNS)].astype(float).iterrows()
    }


def kept() -> Predictions:
    """Return what was accepted."""
    with KEPT.open(encoding="utf-8", newline="") as file:
        return {
            row.pop("row"): {name: float(cell) for name, cell in row.items() if cell}
            for row in csv.DictReader(file)
        }


def differing(one: Predictions, other: Predictions) -> list[str]:
    """Return a line for each prediction that one has otherwise than the other."""
    cells = {(key, name) for each in (one, other) for key, row in each.items() for name in row}
    lines = []
    for key, name in sorted(cells):
        left, right = (each.get(key, {}).get(name, math.nan) for each in (one, other))
        if not math.isclose(left, right, rel_tol=CLOSE):
            lines.append(f"{key}, {name}: {left:.10g}, now {right:.10g}")
    return lines


def update(predictions: Predictions) -> None:
    """Write the accepted predictions."""
    with KEPT.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["row", *COLUMNS])
        for key, row in predictions.items():
            cells = (f"{row[name]:.10g}" if name in row else "" for name in COLUMNS)
            writer.writerow([key, *cells])


def main() -> int:
    """Compare, or write."""
    predicted = now()
    if sys.argv[1:] == ["--update"]:
        update(predicted)
        return 0
    lines = differing(kept(), predicted)
    print("\n".join(lines) or "all predictions as accepted")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
