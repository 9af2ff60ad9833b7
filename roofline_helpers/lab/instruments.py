"""Four instruments: any kernel, one matmul on several chips, any matmul, the chain cut anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from roofline_helpers import work
from roofline_helpers._checks import BadType, BadValue, quantity, shown, whole
from roofline_helpers.ask import Element
from roofline_helpers.dtypes import dtype as dtype_of
from roofline_helpers.hardware import Chip
from roofline_helpers.hardware import chip as chip_of
from roofline_helpers.lab.shared import first_compute_bound, instrument, matmul_row, rate
from roofline_helpers.show import si, significant

LARGEST_SIDE = 1_000_000
"""No side of a matmul above this is accepted in a field."""


def point(
    chip: Any = "v7x",
    intensity: float = 200.0,
    dtype: Any = None,
    *,
    flops: float = 1e12,
    key: str = "point",
    title: str = "Any kernel, any chip",
) -> Element:
    """Return an instrument: a kernel of any intensity under the roof of any chip.

    Shows what it can attain, what bounds it, and its least time.

    Parameters
    ----------
    chip : str, Chip or jax.Device
        What it starts with, as the next three.
    intensity : float
        FLOP/byte, 0.01 to 100,000.
    dtype : str or data type, optional
        The chip's 16-bit type if not given.
    flops : float
        FLOPs of the kernel.
    key : str
        Its name in the page's address.
    title : str
        The bold line above it.

    Raises
    ------
    BadType, BadValue, UnknownName
        No such chip or type, or a changed chip; an intensity outside the range; not a positive
        number.

    Examples
    --------
    >>> point("v7x", intensity=200).kind
    'point'
    """
    start = start_of(chip, dtype)
    value = one_number("intensity", quantity("intensity", intensity))
    if not 0.01 <= value <= 1e5:
        raise BadValue(f"intensity must be from 0.01 to 100,000, got {shown(intensity)}")
    amount = one_number("flops", quantity("flops", flops))
    roof = chip_of(chip).roofline(start["dtype"])
    rows = [
        {
            "FLOP/byte": f"{significant(i)}",
            "attainable": rate(roof.attainable(i)),
            "bound": roof.bound(i),
        }
        for i in sorted({value, roof.ridge, *(10.0**p for p in range(0, 5))})
    ]
    plain = (
        f"{significant(value)} FLOP/byte on {roof.name}: {roof.bound(value)}-bound, "
        f"at most {rate(roof.attainable(value))}"
    )
    return instrument(
        "point", key, title, {**start, "intensity": value, "flops": amount}, plain, rows
    )


def ridges(
    chips: Sequence[Any] = ("v5p", "v6e", "v7x"),
    dtype: Any = None,
    *,
    n: int = 600,
    key: str = "ridges",
    title: str = "One matmul, several chips",
) -> Element:
    """Return an instrument: roofs of up to four chips, and a square matmul under each of them.

    Shows each ridge, and from which N on the chip is compute-bound.

    Parameters
    ----------
    chips : sequence of str, Chip or jax.Device
        One to four to start with.
    dtype : str or data type, optional
        The first chip's 16-bit type if not given.
    n : int
        Size of the matmul.
    key, title : str
        As in `point`.

    Raises
    ------
    BadType, BadValue, UnknownName
        No such chip or type, or a changed chip; not one to four chips; a size that is not a whole
        positive number.

    Examples
    --------
    >>> ridges(["v5p", "v6e"]).kind
    'ridges'
    """
    if isinstance(chips, str) or not isinstance(chips, Sequence) or not 1 <= len(chips) <= 4:
        raise BadType(f"chips must be a sequence of one to four chips, got {shown(chips)}")
    listed = [listed_chip(each) for each in chips]
    kind = dtype_of(listed[0].half if dtype is None else dtype)
    listed[0].peak(kind)
    side = whole("n", n, LARGEST_SIDE)
    slots = dict(zip("abcd", [*(each.key for each in listed), *[""] * 3], strict=False))
    job = work.matmul(side, side, side, kind)
    roofs = [each.roofline(kind) for each in listed if kind in (*each.matrix, *each.vector)]
    rows: list[dict[str, Any]] = [
        {
            "chip": roof.name,
            "peak": rate(roof.peak),
            "memory": si(roof.bandwidth, "B/s", digits=4),
            "ridge": significant(roof.ridge),
            "compute-bound from N": first_compute_bound(roof, kind),
            f"N = {side}": f"{roof.bound(job.intensity)}-bound",
        }
        for roof in roofs
    ]
    plain = f"{kind} matmul of size {side}, {significant(job.intensity)} FLOP/byte: " + ", ".join(
        f"{roof.bound(job.intensity)}-bound on {roof.name} (ridge {significant(roof.ridge)})"
        for roof in roofs
    )
    return instrument("ridges", key, title, {**slots, "dtype": kind, "n": side}, plain, rows)


def matmul(
    chip: Any = "h100",
    m: int = 512,
    n: int | None = None,
    k: int | None = None,
    dtype: Any = None,
    *,
    key: str = "matmul",
    title: str = "Any matmul, any chip",
) -> Element:
    """Return an instrument: C[m, n] = A[m, k] · B[k, n] under the roof of any chip.

    Shows intensity, attainable FLOP/s, share of the peak, regime, and the formula with the
    numbers put in.

    Parameters
    ----------
    chip : str, Chip or jax.Device
        What it starts with, as the next four.
    m, n, k : int
        Sides, 1 to `LARGEST_SIDE`; n and k are m if not given.
    dtype : str or data type, optional
        The chip's 16-bit type if not given.
    key, title : str
        As in `point`.

    Raises
    ------
    BadType, BadValue, UnknownName
        No such chip or type, or a changed chip; a side that is not a whole number in the range.

    Examples
    --------
    >>> matmul("h100", m=512).data["key"]
    'matmul'
    """
    start = start_of(chip, dtype)
    sides = {
        side: whole(side, m if length is None else length, LARGEST_SIDE)
        for side, length in (("m", m), ("n", n), ("k", k))
    }
    roof = chip_of(chip).roofline(start["dtype"])
    job = work.matmul(sides["m"], sides["n"], sides["k"], start["dtype"])
    plain = (
        f"{' × '.join(str(v) for v in sides.values())} matmul in {start['dtype']} on "
        f"{chip_of(chip).name}: {significant(job.intensity)} FLOP/byte, "
        f"{roof.bound(job.intensity)}-bound, at most {rate(roof.attainable(job.intensity))}"
    )
    rows = [matmul_row(roof, start["dtype"], side) for side in (128, 512, 1024, 2048, 8192)]
    return instrument("matmul", key, title, {**start, **sides}, plain, rows)


def chain(
    chip: Any = "v7x",
    rows: int = 65536,
    width: int = 4096,
    dtype: Any = None,
    *,
    key: str = "chain",
    title: str = "Cut the chain where you like",
) -> Element:
    """Return an instrument: LayerNorm, GELU, dropout and residual add, fused as the reader likes.

    Shows bytes, time and the ratio to four kernels: the bytes are those that enter and leave each
    kernel.

    Parameters
    ----------
    chip : str, Chip or jax.Device
        What it starts with, as the next three.
    rows, width : int
        Tokens, and elements of each.
    dtype : {"bf16", "fp16", "fp32"}, optional
        Type of every tensor, the mask included; the chip's 16-bit type if not given.
    key, title : str
        As in `point`.

    Raises
    ------
    BadType, BadValue, UnknownName
        No such chip or type, or a changed chip; sizes that are not whole numbers in the range.

    Examples
    --------
    >>> chain("h100").kind
    'chain'
    """
    start = start_of(chip, dtype)
    if start["dtype"] not in ("bf16", "fp16", "fp32"):
        raise BadValue(f"dtype must be bf16, fp16 or fp32, got {shown(dtype)}")
    tokens, wide = whole("rows", rows, 1e8), whole("width", width, LARGEST_SIDE)
    roof = chip_of(chip).roofline(start["dtype"])
    apart = work.fusion_chain(tokens, wide, start["dtype"])
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
    joints = dict.fromkeys(("ab", "bc", "cd"), "no")
    start |= {"rows": tokens, "width": wide, **joints}
    return instrument("chain", key, title, start, plain, listed)


def listed_chip(chip: Any) -> Chip:
    """Return a chip as the catalogue has it: the script shows no other."""
    wanted = chip_of(chip)
    if wanted != chip_of(wanted.key):
        raise BadValue(
            f"a chip of the catalogue is needed, such as rh.chip({wanted.key!r}), "
            f"got a changed one: {shown(wanted.name)}"
        )
    return wanted


def start_of(chip: Any, dtype: Any) -> dict[str, Any]:
    """Return the starting values that all instruments have: chip and data type."""
    wanted = listed_chip(chip)
    kind = dtype_of(wanted.half if dtype is None else dtype)
    wanted.peak(kind)
    return {"chip": wanted.key, "dtype": kind}


def one_number(name: str, value: Any) -> float:
    """Return one number; raise BadType for several."""
    if not isinstance(value, int | float):
        raise BadType(f"{name} must be one number, got {shown(value)}")
    return value
