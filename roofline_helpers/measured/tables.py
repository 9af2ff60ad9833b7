"""Published measurements of GPU kernels: their tables, FLOPs and bytes."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from roofline_helpers.common.checks import RooflineError, name_of
from roofline_helpers.common.dtypes import BITS
from roofline_helpers.work import Work, flash_attention, grouped_matmul, latent_attention, matmul

if TYPE_CHECKING:
    import pandas as pd


class NoData(RooflineError, LookupError):
    """Too few similar kernels were measured.

    Examples
    --------
    >>> from roofline_helpers import measured, work
    >>> measured.seconds_like(work.layernorm(4096, 4096), "h100")
    Traceback (most recent call last):
        ...
    roofline_helpers.measured.tables.NoData: no kernels like 'layernorm' were measured by ...
    """


# --- FLOPs and bytes of the measured kernels, by the same counts as any other kernel's -----------

# A type's name in the tables: type of A or of queries, and of weights or cache
TYPES = {
    "bf16": ("bf16", "bf16"),
    "fp8": ("fp8", "fp8"),
    "fp8 in blocks": ("fp8 in blocks", "fp8 in blocks"),
    "nvfp4": ("nvfp4", "nvfp4"),
    "int8": ("int8", "int8"),
    "int8 weights": ("bf16", "int8"),
    "int4 weights": ("bf16", "int4"),
    "mxfp4 weights": ("bf16", "mxfp4"),
    "mxfp4 weights, mxfp8": ("mxfp8", "mxfp4"),
    "bf16, fp8 cache": ("bf16", "fp8"),
}


def dtype_in_tables(job: Work) -> str:
    """Return the tables' name of a kernel's type; raise NoData if they don't have it.

    In mxfp8 nothing was measured but experts with weights in mxfp4.
    """
    named = {"fp16": "bf16", "fp4": "nvfp4"}.get(job.dtype, job.dtype)
    own = BITS[job.dtype]
    bits = job.dims.get("weight_bits", job.dims.get("kv_bits", own))
    if bits == own and named in TYPES:
        return named
    first = named if own == 16 else job.dtype
    other = "weights" if "kv_bits" in job.dims else "cache"
    # a pair of types may stand for weights or for a cache: the name says which
    for name, (a, b) in TYPES.items():
        if (a, BITS[b]) == (first, bits) and other not in name:
            return name
    raise NoData(
        f"no measured kernels in {job.dtype} with weights or a cache of {bits:g} bits. "
        f"Allowed: {'; '.join(TYPES)}"
    )


def count(family: str, rows: Any, dtype: str) -> Work:
    """Return one `Work` whose counts are arrays, one element per measured kernel.

    `rows` is a table or a mapping of columns.
    """
    a, weights = TYPES[dtype]
    s = {name: np.asarray(rows[name]) for name in rows if name != "op"}
    if family == "matmul":
        return matmul(s["m"], s["n"], s["k"], a, b=weights, out="bf16")
    prefill = family.startswith("prefill")
    q_len = s["kv_len"] if prefill else 1
    if family in ("prefill_attention", "decode_attention"):
        sides = (s["batch"], q_len, s["kv_len"], s["heads"], s["head_dim"], s["kv_heads"])
        return flash_attention(*sides, a, kv_dtype=weights, causal=prefill)
    if family in ("prefill_mla", "decode_mla"):
        return latent_attention(s["batch"], q_len, s["kv_len"], s["heads"], a, kv_dtype=weights)
    sizes = {name: s[name] for name in ("tokens", "hidden", "inter", "experts", "top_k")}
    return grouped_matmul(**sizes, dtype=a, local_experts=s["local_experts"], weights=weights)


def summed_length(job: Work) -> Any:
    """Return the length that one output of a kernel is summed over, in elements.

    Of a grouped matmul, the elements that kernels around it pass on: every token is quantised or
    copied, and collected at the end, wherever its experts are; a pair's row is sorted by expert,
    and its inner rows go to the activation and back.
    """
    if job.kind == "grouped_matmul":
        d = {name: np.asarray(size, dtype=float) for name, size in job.dims.items()}
        pairs = np.maximum(1, d["tokens"] * d["top_k"] * d["local_experts"] / d["experts"])
        return 2 * d["tokens"] * d["hidden"] + pairs * (d["hidden"] + 2 * d["inter"])
    named = "k" if job.kind == "matmul" else "kv_len"
    return np.asarray(job.dims.get(named, 0), dtype=float)


# --- Tables of measured kernels, by family, each shape with its fastest library ------------------

FOLDER = Path(__file__).parents[1] / "data/benchmarks"
TEXTS = FOLDER / "tables"
"""The folder of tables that are text: FAMILY.tsv or FAMILY.CHIP.tsv, also beside a packed one."""
STEPS = 64
"""Steps per octave to which times are rounded in packed files: 1.1% apart."""


def families() -> list[str]:
    """Return the names of the tables.

    Examples
    --------
    >>> "matmul" in families()
    True
    """
    files = [*FOLDER.glob("*.npz"), *TEXTS.glob("*.tsv")]
    return sorted({path.name.partition(".")[0] for path in files})


@functools.cache
def group(family: str, chip: str, dtype: str) -> dict[str, Any]:
    """Return the columns of one chip's kernels in one type, as arrays."""
    columns, seconds = _columns(family)
    here = np.ones(len(seconds), bool)
    for name, wanted in (("chip", chip), ("dtype", dtype)):
        values, codes = columns.pop(name)
        here &= (values == wanted)[codes]
    rows = {name: values[codes[here]] for name, (values, codes) in columns.items()}
    return {**rows, "seconds": seconds[here]}


def _columns(family: str) -> tuple[dict[str, Any], Any]:
    """Return each column as its distinct values and each row's index, and the seconds."""
    parts = [_packed(path) for path in FOLDER.glob(f"{family}.npz")]
    parts += [_of_text(path) for path in sorted(TEXTS.glob(f"{family}.*tsv"))]
    columns = {name: _joined([part[name] for part, _ in parts]) for name in parts[0][0]}
    return columns, np.concatenate([seconds for _, seconds in parts])


def _joined(column: list[tuple[Any, Any]]) -> tuple[Any, Any]:
    """Return one column of several files: its distinct values, and each row's index."""
    values = np.unique(np.concatenate([own for own, _ in column]))
    return values, np.concatenate([np.searchsorted(values, own)[codes] for own, codes in column])


def _packed(path: Path) -> tuple[dict[str, Any], Any]:
    with np.load(path) as arrays:
        names = [name.removesuffix(".values") for name in arrays if name.endswith(".values")]
        columns: dict[str, Any] = {name: (arrays[f"{name}.values"], arrays[name]) for name in names}
        steps = np.cumsum(arrays["seconds"].astype(np.int64))  # differences are smaller files
        return columns, 1e-9 * 2.0 ** (steps / STEPS)


def _of_text(path: Path) -> tuple[dict[str, Any], Any]:
    # tabs, since the tables' names of types have commas
    rows: Any = np.genfromtxt(path, None, delimiter="\t", names=True, encoding="utf-8", ndmin=1)
    names = [name for name in rows.dtype.names if name != "seconds"]
    return {name: np.unique(rows[name], return_inverse=True) for name in names}, rows["seconds"]


def table(family: str) -> pd.DataFrame:
    """Return the measured kernels of a family, one row per shape.

    The experts of `grouped_matmul` have equal loads, and `inter` is what a GPU has of their width.

    vLLM's matmuls in bf16 and fp8 are left out, since its benchmark's weights are unset or all the
    same; and those in nvfp4 with weights that the L2 holds, which were timed warm.

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

    columns, seconds = _columns(name_of("family", family, families()))
    frame = {}
    for name, (values, codes) in columns.items():
        text = values.dtype.kind == "U"
        frame[name] = pd.Categorical.from_codes(codes, values) if text else values[codes]
    return pd.DataFrame({**frame, "seconds": seconds})
