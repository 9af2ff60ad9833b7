"""Tables of measured GPU kernels, one file a family, each shape with its fastest library.

Source: `aiconfigurator-core` 0.12.0, © NVIDIA Corporation & affiliates, Apache-2.0. Its collector
(github.com/ai-dynamo/aiconfigurator, folder `collector`) locks clocks at their highest, uses CUDA
graphs where it can, and runs each kernel several times on the same operands: caches are warm, and
short runs may stay below the power limit. `tools/condense.py` makes the tables from it.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from roofline_helpers._checks import name_of

if TYPE_CHECKING:
    import pandas as pd

FOLDER = Path(__file__).parents[1] / "data/benchmarks"
STEPS = 64
"""Steps of an octave in which times are kept: 1.1 % apart."""


def families() -> list[str]:
    """Return the names of the tables.

    Examples
    --------
    >>> "matmul" in families()
    True
    """
    return sorted(path.stem for path in FOLDER.glob("*.npz"))


@functools.cache
def group(family: str, chip: str, dtype: str) -> dict[str, Any]:
    """Return the columns of one chip's kernels in one type, as arrays."""
    columns, steps = _columns(family)
    here = np.ones(len(steps), bool)
    for name, wanted in (("chip", chip), ("dtype", dtype)):
        values, codes = columns.pop(name)
        here &= (values == wanted)[codes]
    rows = {name: values[codes[here]] for name, (values, codes) in columns.items()}
    return {**rows, "seconds": _seconds(steps[here])}


def _columns(family: str) -> tuple[dict[str, Any], Any]:
    """Return each column as its values and the place of each row's value, and the times' steps."""
    with np.load(FOLDER / f"{family}.npz") as arrays:
        names = [name.removesuffix(".values") for name in arrays if name.endswith(".values")]
        columns: dict[str, Any] = {name: (arrays[f"{name}.values"], arrays[name]) for name in names}
        return columns, np.cumsum(arrays["seconds"].astype(np.int64))


def _seconds(steps: Any) -> Any:
    return 1e-9 * 2.0 ** (steps / STEPS)


def table(family: str) -> pd.DataFrame:
    """Return the measured kernels of a family, one row a shape.

    Parameters
    ----------
    family : str
        One of `families`.

    Returns
    -------
    DataFrame
        The shape's sizes in elements (`bytes` for collectives), `chip`, `dtype`, the fastest
        `library`, and `seconds`.

    Raises
    ------
    UnknownName
        No such family; the message gives the nearest.

    Examples
    --------
    >>> gemms = table("matmul")
    >>> set(gemms.columns) == {"chip", "dtype", "m", "n", "k", "library", "seconds"}
    True
    """
    import pandas as pd

    columns, steps = _columns(name_of("family", family, families()))
    frame = {}
    for name, (values, codes) in columns.items():
        text = values.dtype.kind == "U"
        frame[name] = pd.Categorical.from_codes(codes, values) if text else values[codes]
    return pd.DataFrame({**frame, "seconds": _seconds(steps)})


def sources() -> dict[str, Any]:
    """Return for each family its rows, shapes, library versions by chip, and what was dropped.

    Examples
    --------
    >>> sources()["matmul"]["rows"] > 2_000_000
    True
    """
    read: dict[str, Any] = json.loads((FOLDER / "sources.json").read_text("utf-8"))
    return read
