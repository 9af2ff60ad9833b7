"""Instruments on the page: any kernel, chips, matmuls, the chain.

They compute in JavaScript what `roofline_helpers` computes in Python: `assets/model.js` and
`verdicts.js` hold the model, with chips and costs from here, and tests hold both together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from markupsafe import Markup

from roofline_helpers import work
from roofline_helpers.chips import Chip, Figure, all_chips
from roofline_helpers.chips import chip as chip_of
from roofline_helpers.common.dtypes import BITS
from roofline_helpers.common.show import si, significant, table, table_html
from roofline_helpers.pages.element import ASK, Bundle, Element, fragment, to_json
from roofline_helpers.roofline import Roofline
from roofline_helpers.work import operations

# --- The model in JavaScript: its data and its scripts -------------------------------------------


def tables() -> dict[str, Any]:
    """Return the data of assets/model.js: data types, FLOPs of operations, chips."""
    costs = {
        op: {"element": flops, "row": operations.ROW_COSTS.get(op, (0, 0))[0]}
        for op, (flops, _) in operations.COSTS.items()
    }
    scaled = work.naive_attention(1, 1)[1].vector_flops
    costs["scale+softmax"] = {"element": int(scaled), "row": 0}
    return {
        "bits": dict(BITS),
        "costs": costs,
        "chips": [_chip_data(chip) for chip in all_chips()],
    }


def _chip_data(chip: Chip) -> dict[str, Any]:
    def plain(figures: Mapping[str, Figure]) -> dict[str, float]:
        return {name: figure.value for name, figure in figures.items()}

    stream = chip.reached.stream()
    return {
        **{name: getattr(chip, name) for name in ("key", "name", "kind", "half")},
        "matrix": plain(chip.matrix),
        "vector": plain(chip.vector),
        "bandwidth": chip.roofline(chip.half).bandwidth,
        "capacity": chip.memory["hbm"].capacity.value,
        "inside": chip.on_chip[1],
        "floor": chip.floor and chip.floor.value,
        "reached": {
            "matrix": plain(chip.reached.matrix),
            "vector": plain(chip.reached.vector),
            "bandwidth": stream and stream.value,
        },
    }


def model_script() -> str:
    """Return the model in JavaScript: a constant `tables`, then assets/model.js."""
    return f"const tables = {to_json(tables())};\n{_asset('model')}"


def _asset(name: str) -> str:
    folder = resources.files("roofline_helpers") / "pages/assets"
    return (folder / f"{name}.js").read_text("utf-8")


def _scripts() -> list[str]:
    return [model_script(), *(_asset(name) for name in ("verdicts", "chart", "instruments"))]


INSTRUMENT = Bundle("instrument", _scripts, after=ASK)
"""The scripts of instruments."""

# --- Elements and number formats, also for labs -------------------------------------------------


def instrument(
    kind: str,
    title: str,
    start: Mapping[str, Any],
    plain: str,
    rows: Sequence[Mapping[str, Any]],
    key: str = "",
    bundle: Bundle = INSTRUMENT,
    **more: Any,
) -> Element:
    """Return an instrument: its starting values, and text and table as the fallback.

    `key` is its name in the page's address, `more` further data for its script.
    """
    data = {"key": key or kind, "title": title, "start": dict(start)} | more
    listed = Markup(table_html(table(rows)))
    fallback = fragment("instrument", title, plain, listed)
    return Element(kind, data, str(fallback), plain, bundle=bundle)


def first_compute_bound(roof: Roofline, dtype: str) -> int:
    """Return the first N of a square matmul that is compute-bound."""
    n = max(1, int(roof.ridge * BITS[dtype] * 3 / 16) - 2)
    while roof.bound(work.matmul(n, n, n, dtype).intensity) != "compute":
        n += 1
    return n


def matmul_row(roof: Roofline, dtype: str, side: int) -> dict[str, Any]:
    """Return a square matmul's row of a table: N, intensity, attainable, share, regime.

    As in the charts, many such matmuls run in a row: under the roof alone, without the floor.
    """
    job = work.matmul(side, side, side, dtype)
    top = roof.attainable(job.intensity)
    return {
        "N": side,
        "FLOP/byte": job.intensity,
        "attainable": rate(top),
        "of the peak": percent(roof.mfu(top)),
        "regime": f"{roof.bound(job.intensity)}-bound",
    }


def rate(flops: float) -> str:
    """Return FLOP/s as the charts do: TFLOP/s, not PFLOP/s."""
    text = si(flops, "FLOP/s")
    return (
        si(flops, "FLOP/s", "T", max(3, len(str(int(flops / 1e12))))) if "PFLOP" in text else text
    )


def percent(share: float) -> str:
    """Return a share as a percentage of two digits, "100%" for all of it."""
    return f"{significant(100 * share, 2 if share < 0.995 else 3)}%"


# --- Four instruments: any kernel, one matmul on several chips, any matmul, the chain ------------


def point(chip: str = "v7x", intensity: float = 200.0, *, key: str = "point") -> Element:
    """Return an instrument: a kernel of any intensity under the roof of any chip.

    It shows attainable FLOP/s, bound and least time. The arguments are the starting values.

    Parameters
    ----------
    chip : str
        As in `roofline_helpers.chip`.
    intensity : float
        FLOP/byte.
    key : str
        Its name in the page's address.

    Raises
    ------
    UnknownName
        No such chip.

    Examples
    --------
    >>> point("v7x", intensity=200).kind
    'point'
    """
    start, roof = start_of(chip)
    rows = [
        {
            "FLOP/byte": f"{significant(i)}",
            "attainable": rate(roof.attainable(i)),
            "bound": roof.bound(i),
        }
        for i in sorted({intensity, roof.ridge, *(10.0**p for p in range(0, 5))})
    ]
    plain = (
        f"{significant(intensity)} FLOP/byte on {roof.name}: {roof.bound(intensity)}-bound, "
        f"at most {rate(roof.attainable(intensity))}"
    )
    start |= {"intensity": intensity, "flops": 1e12}
    return instrument("point", "Any kernel, any chip", start, plain, rows, key)


def ridges(chips: Sequence[str] = ("v5p", "v6e", "v7x"), *, n: int = 600) -> Element:
    """Return an instrument: roofs of up to four chips, and a square matmul under each of them.

    It shows each ridge, and the N from which on each chip is compute-bound, in the first chip's
    16-bit type.

    Parameters
    ----------
    chips : sequence of str
        One to four to start with.
    n : int
        Size of the matmul.

    Raises
    ------
    UnknownName
        No such chip.

    Examples
    --------
    >>> ridges(["v5p", "v6e"]).kind
    'ridges'
    """
    compared = [chip_of(chip) for chip in chips]
    dtype = compared[0].half
    slots = dict(zip("abcd", [*(chip.key for chip in compared), "", "", ""], strict=False))
    job = work.matmul(n, n, n, dtype)
    roofs = [chip.roofline(dtype) for chip in compared]
    rows: list[dict[str, Any]] = [
        {
            "chip": roof.name,
            "peak": rate(roof.peak),
            "memory": si(roof.bandwidth, "B/s", digits=4),
            "ridge": significant(roof.ridge),
            "compute-bound from N": first_compute_bound(roof, dtype),
            f"N = {n}": f"{roof.bound(job.intensity)}-bound",
        }
        for roof in roofs
    ]
    plain = f"{dtype} matmul of size {n}, {significant(job.intensity)} FLOP/byte: " + ", ".join(
        f"{roof.bound(job.intensity)}-bound on {roof.name} (ridge {significant(roof.ridge)})"
        for roof in roofs
    )
    start = {**slots, "dtype": dtype, "n": n}
    return instrument("ridges", "One matmul, several chips", start, plain, rows)


def matmul(chip: str = "h100", side: int = 512) -> Element:
    """Return an instrument: C[m, n] = A[m, k] · B[k, n] under the roof of any chip.

    It shows intensity, attainable FLOP/s, share of the peak, regime, and the formula with its
    numbers. It starts with square matrices of this side.

    Raises
    ------
    UnknownName
        No such chip.

    Examples
    --------
    >>> matmul("h100", 512).data["key"]
    'matmul'
    """
    start, roof = start_of(chip)
    job = work.matmul(side, side, side, start["dtype"])
    plain = (
        f"{side} × {side} × {side} matmul in {start['dtype']} on "
        f"{chip_of(chip).name}: {significant(job.intensity)} FLOP/byte, "
        f"{roof.bound(job.intensity)}-bound, at most {rate(roof.attainable(job.intensity))}"
    )
    rows = [matmul_row(roof, start["dtype"], size) for size in (128, 512, 1024, 2048, 8192)]
    start |= dict.fromkeys("mnk", side)
    return instrument("matmul", "Any matmul, any chip", start, plain, rows)


def chain(chip: str = "v7x", rows: int = 65536, width: int = 4096) -> Element:
    """Return an instrument: LayerNorm, GELU, dropout and residual add, fused by the reader.

    It shows bytes, time and the ratio to four kernels: the bytes are those that enter and leave
    each kernel. All tensors, including the mask, have the chip's 16-bit type.

    Parameters
    ----------
    chip : str
        The chip at the start.
    rows, width : int
        Tokens, and elements of each, at the start.

    Raises
    ------
    UnknownName
        No such chip.

    Examples
    --------
    >>> chain("h100").kind
    'chain'
    """
    start, roof = start_of(chip)
    apart = work.fusion_chain(rows, width, start["dtype"])
    cuts = {
        "4 kernels": apart,
        "2 kernels": [work.fuse(*apart[:2]), work.fuse(*apart[2:])],
        "1 kernel": [work.fuse(*apart)],
    }
    seconds = {name: roof.time(*kernels) for name, kernels in cuts.items()}
    listed = [
        {
            "as": name,
            "bytes": si(work.total(*kernels).bytes, "B"),
            "least time": si(seconds[name], "s"),
            "ratio": f"{significant(seconds['4 kernels'] / seconds[name])}×",
        }
        for name, kernels in cuts.items()
    ]
    plain = f"On {roof.name}: " + "; ".join(
        f"{row['as']}: {row['bytes']}, {row['least time']}" for row in listed
    )
    start |= {"rows": rows, "width": width, **dict.fromkeys(("ab", "bc", "cd"), "no")}
    return instrument("chain", "Cut the chain where you like", start, plain, listed)


def start_of(chip: str) -> tuple[dict[str, Any], Roofline]:
    """Return the starting values of all instruments, a chip and its 16-bit type, and their roof."""
    wanted = chip_of(chip)
    return {"chip": wanted.key, "dtype": wanted.half}, wanted.roofline(wanted.half)
