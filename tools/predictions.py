"""Every prediction of the scoreboard as it was last accepted, so that a diff shows what changes.

    python -m tools.predictions             say which differ
    python -m tools.predictions --update    write it anew, and what each constant is worth

One line a row of the scoreboard, seconds in ten digits. A change of the model that moves a
prediction is meant or it isn't; `tests/package/test_published_steps.py` makes somebody say so.
"""

import sys

import numpy as np
import pandas as pd

import roofline
from tools import books, constants

TABLE = books.ROOT / "tests/data/predictions.csv"
COLUMNS = ["bound s", "reached s", "law s", "compiled s", "rule of thumb s", "mlsysim s"]
CLOSE = 1e-6
"""Share by which a prediction may differ from the one that was accepted."""


def now() -> pd.DataFrame:
    """Return what is predicted now, by row and column; what isn't predicted is missing."""
    by_law = roofline.scoreboard(law=True)["predicted s"]
    board = (
        roofline.scoreboard()
        .rename(columns={"predicted s": "reached s"})
        .assign(**{"law s": by_law})
    )
    return board[COLUMNS].astype(float).rename_axis("row")


def kept() -> pd.DataFrame:
    """Return what was accepted."""
    return pd.read_csv(TABLE, index_col="row")


def differing(one: pd.DataFrame, other: pd.DataFrame) -> list[str]:
    """Return a line for each prediction that one has otherwise than the other."""
    left, right = one[COLUMNS].align(other[COLUMNS], axis=0)
    before = left.to_numpy()
    after = right.to_numpy()
    same = np.isclose(before, after, rtol=CLOSE, atol=0, equal_nan=True)
    rows = map(tuple, np.argwhere(~same))
    return [
        f"{left.index[at[0]]!s}, {COLUMNS[at[1]]}: {before[at]:.10g}, now {after[at]:.10g}"
        for at in rows
    ]


def main() -> int:
    """Compare, or write."""
    predicted = now()
    if sys.argv[1:] == ["--update"]:
        predicted.to_csv(TABLE, float_format="%.10g")
        constants.main()
        return 0
    lines = differing(kept(), predicted)
    print("\n".join(lines) or "all predictions as accepted")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
