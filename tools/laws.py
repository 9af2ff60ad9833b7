"""Fit the laws of measured kernels, and judge them on shapes and chips that were left out.

    python -m tools.laws ../shared/measured

Needs pyarrow and scipy, and the tables of `tools.condense`. Left out of a fit are 30 % of the
weights (pairs of n and k; heads and their size; experts), at random, with all their shapes. On
these the law is compared with the bare roof and with the nearest shape that was fitted.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
from scipy.optimize import least_squares
from scipy.spatial import cKDTree

from roofline_helpers.benchmarks.counts import TYPES, count, reduced
from roofline_helpers.benchmarks.law import FASTEST, Errors, Law, least
from roofline_helpers.benchmarks.tables import FOLDER, table
from roofline_helpers.hardware import chip
from tools import condense

# Columns that say which weights a shape has: shapes with the same ones are left out together
WEIGHTS = {
    "matmul": ["n", "k"],
    "prefill_attention": ["heads", "kv_heads", "head_dim"],
    "decode_attention": ["heads", "kv_heads", "head_dim"],
    "prefill_mla": ["batch"],
    "decode_mla": ["batch"],
    "grouped_matmul": ["hidden", "inter", "experts", "local_experts", "top_k"],
}
SIZES = {
    "matmul": ["m", "n", "k"],
    "prefill_attention": ["batch", "heads", "kv_heads", "head_dim", "kv_len"],
    "prefill_mla": ["batch", "heads", "kv_len"],
    "grouped_matmul": ["tokens", "hidden", "inter", "experts", "local_experts", "top_k"],
}
SIZES |= {"decode_attention": SIZES["prefill_attention"], "decode_mla": SIZES["prefill_mla"]}
FEWEST = 200  # shapes: below that nothing is fitted
BEGIN = np.log([3e-6, 0.7, 0.7, 2.0, 4e-10])
LOWEST = np.log([1e-7, 0.01, 0.01, 1.0, 1e-14])
HIGHEST = np.log([1e-3, 10.0, 10.0, 12.0, 1e-6])


def curve(logs: Any, x: Any) -> Any:
    """Return the law's seconds for the logarithms of its constants."""
    start, compute, memory, corner, step = np.exp(np.clip(logs, LOWEST, HIGHEST))
    parts = (x[0] / compute) ** corner + (x[1] / memory) ** corner
    return start + (parts + (step * x[2]) ** corner) ** (1 / corner)


def fit(x: Any, seconds: Any) -> Any:
    """Return the logarithms of the constants: least relative errors, outliers weighted down."""

    def off(logs: Any) -> Any:
        return np.log(curve(logs, x) / seconds)

    best = least_squares(off, BEGIN, bounds=(LOWEST, HIGHEST), loss="soft_l1", f_scale=0.1)
    return best.x


def errors(predicted: Any, seconds: Any) -> Errors:
    off = np.abs(predicted / seconds - 1)
    return Errors(*(round(float(np.quantile(off, q)), 4) for q in (0.5, 0.9)))


def judged(rows: pd.DataFrame, family: str, on: str, dtype: str, library: str) -> Law | None:
    """Fit one law on 70 % of the weights, judge it on the others."""
    groups = rows.groupby(WEIGHTS[family]).ngroup().to_numpy()
    if len(rows) < FEWEST or groups.max() < 4:
        return None
    job = count(family, rows, dtype)
    try:
        first = least(job, chip(on))
    except LookupError:  # the chip has no such unit: weights only, say
        return None
    zero = np.zeros(len(rows))
    x = np.stack([first[0] + zero, first[1] + zero, reduced(job) + zero])
    seconds = rows["seconds"].to_numpy()
    out = np.random.default_rng(0).random(groups.max() + 1)[groups] < 0.3
    logs = fit(x[:, ~out], seconds[~out])
    sizes = np.log(rows[SIZES[family]].to_numpy(dtype=float))
    _, near = cKDTree(sizes[~out]).query(sizes[out])
    start, compute, memory, corner, step = (float(f"{v:.4g}") for v in np.exp(logs))
    return Law(
        family=family,
        chip=on,
        dtype=dtype,
        library=library,
        start=start,
        compute=compute,
        memory=memory,
        corner=corner,
        step=step,
        shapes=int((~out).sum()),
        left_out=int(out.sum()),
        law=errors(curve(logs, x[:, out]), seconds[out]),
        roof=errors(np.maximum(x[0], x[1])[out], seconds[out]),
        nearest=errors(seconds[~out][near], seconds[out]),
    )


def unseen(laws: list[Law], rows: dict[tuple[str, str, str, str], pd.DataFrame]) -> list[Law]:
    """Return the laws with the error of constants taken from the other chips alone."""
    done = []
    for law in laws:
        others = [
            [one.start, one.compute, one.memory, one.corner, one.step]
            for one in laws
            if one.chip != law.chip
            and (one.family, one.dtype, one.library) == (law.family, law.dtype, law.library)
        ]
        if len(others) >= 3:
            here = rows[law.family, law.chip, law.dtype, law.library]
            job = count(law.family, here, law.dtype)
            zero = np.zeros(len(here))
            x = np.stack([*(part + zero for part in least(job, chip(law.chip))), reduced(job)])
            logs = np.log(np.maximum(others, 1e-17)).mean(axis=0)
            law = msgspec.structs.replace(law, unseen=errors(curve(logs, x), here["seconds"]))
        done.append(law)
    return done


def main() -> None:
    laws, frames = [], {}
    for family in WEIGHTS:
        best = table(family).assign(library=FASTEST)
        every = condense.FAMILIES[family](Path(sys.argv[1]), {}) if family == "matmul" else best[:0]
        every["dtype"] = every["dtype"].replace(condense.DTYPES)
        rows = pd.concat([best.astype({"dtype": str, "chip": str}), every], ignore_index=True)
        for key, here in rows.groupby(["chip", "dtype", "library"], observed=True):
            on, dtype, library = (str(part) for part in key)
            law = judged(here, family, on, dtype, library) if dtype in TYPES else None
            if law:
                laws.append(law)
                frames[family, on, dtype, library] = here
                print(family, on, dtype, library, law.law, law.roof, law.nearest, flush=True)
    text = msgspec.json.format(msgspec.json.encode(unseen(laws, frames)), indent=0)
    (FOLDER / "laws.json").write_bytes(text + b"\n")


if __name__ == "__main__":
    main()
