"""Instruments: any kernel, chips, matmuls, the chain, a sharded layer, a reader's own kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from roofline_helpers import evidence, network, training, work
from roofline_helpers.chips import Chip
from roofline_helpers.chips import chip as chip_of
from roofline_helpers.common.checks import BadType, BadValue, name_of, quantity, shown, whole
from roofline_helpers.common.dtypes import BITS
from roofline_helpers.common.dtypes import dtype as dtype_of
from roofline_helpers.common.show import si, significant, table, table_html
from roofline_helpers.evidence import verdicts
from roofline_helpers.network import Topology
from roofline_helpers.pages.element import Element
from roofline_helpers.pages.questions import filled, key_of
from roofline_helpers.roofline import Roofline

# --- What instruments and labs share: the element that each becomes, and how numbers are written -


def instrument(
    kind: str,
    key: str,
    title: str,
    start: Mapping[str, Any],
    plain: str,
    rows: Sequence[Mapping[str, Any]],
    bundle: str = "lab",
    **more: Any,
) -> Element:
    """Return an instrument: its starting values, and text and table where no script runs.

    `more` is what else its script needs.
    """
    data = {"key": key_of(key), "title": filled("title", title), "start": dict(start)}
    data |= more
    listed = table_html(table(rows))
    fallback = f"<p><strong>{escape(title)}</strong></p>\n<p>{escape(plain)}.</p>\n{listed}"
    return Element(kind, data, fallback, plain, bundle=bundle)


def first_compute_bound(roof: Roofline, dtype: str) -> int:
    """Return the first N of a square matmul that is compute-bound."""
    n = max(1, int(roof.ridge * BITS[dtype] * 3 / 16) - 2)
    while roof.bound(work.matmul(n, n, n, dtype).intensity) != "compute":
        n += 1
    return n


def matmul_row(roof: Roofline, dtype: str, side: int) -> dict[str, Any]:
    """Return a square matmul's row of a table: N, intensity, attainable, share, regime.

    As the charts have it, of many such products: under the roof alone, without the floor.
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


def lab(
    kind: str, data: Mapping[str, Any], predict: Element, rows: Sequence[Mapping[str, Any]]
) -> Element:
    """Return a lab; where no script runs: story, question, table and equations."""
    story = "".join(f"<p>{escape(paragraph)}</p>" for paragraph in data["story"])
    equations = escape("\n".join(data["equations"]))
    listed = table_html(table(rows))
    fallback = f"{story}\n{predict.fallback}\n{listed}\n<pre>{equations}</pre>"
    plain = "\n".join([*data["story"], predict.plain])
    return Element(kind, data, fallback, plain, bundle="lab")


# --- Four instruments: any kernel, one matmul on several chips, any matmul, the chain cut anywhere

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


# --- An instrument: a layer cut over a slice, and the network's roof over it ---------------------

SLICES: Mapping[str, Any] = {
    "v5e": "16x16",
    "v5p": "4x4x4",
    "v6e": "16x16",
    "v7x": "4x4x4",
    "h100": 8,
    "h200": 8,
    "b200": 8,
}
"""What the instrument offers: a slice or a host of each chip."""

D_MODEL = 8192
DTYPE = "bf16"


def sharding(
    chip: str = "v5e",
    tensor: int = 1,
    tokens: int = 256,
    d_ff: int = 28672,
    *,
    key: str = "sharding",
    title: str = "Drag until the roof breaks",
) -> Element:
    """Return an instrument: a feed-forward layer cut over a slice, under the network's roof.

    Shows what the chips can attain and what bounds them, over tokens a chip. In bf16, at published
    ceilings and without latencies, as `training.layer`; the layer's other width is 8192, which
    bounds nothing.

    Parameters
    ----------
    chip : str
        One of `SLICES`.
    tensor : int
        Chips that split the width, a power of two; the others share the weights.
    tokens : int
        Tokens a chip, 1 to 65536.
    d_ff : int
        The width that is split, 1024 to 131072.
    key, title : str
        As in `point`.

    Raises
    ------
    BadType, BadValue, UnknownName
        No such chip; chips that the slice can't be cut into; a number outside its range.

    Examples
    --------
    >>> sharding("v5e").kind
    'sharding'
    """
    name = name_of("chip", chip, SLICES)
    place = network.topology(name, SLICES[name])
    split, each, inner = whole("tensor", tensor), whole("tokens", tokens), whole("d_ff", d_ff)
    if split not in _ways(place):
        raise BadValue(f"tensor must be one of {_ways(place)}, got {shown(tensor)}")
    if each > 65536 or not 1024 <= inner <= 131072:
        raise BadValue(f"tokens are 1 to 65536, d_ff 1024 to 131072, got {each} and {inner}")
    rows = [_row(place, ways, each, inner) for ways in _ways(place)]
    at = rows[_ways(place).index(split)]
    plain = (
        f"{place.chips} {place.chip.name}, {at['mesh']}, {each} tokens a chip, width {inner}: "
        f"bound by {at['bound']}, at most {at['of the peak']} of the peak"
    )
    start = {"chip": name, "tensor": str(split), "tokens": each, "inner": inner}
    places = {one: _place(network.topology(one, shape)) for one, shape in SLICES.items()}
    return instrument("sharding", key, title, start, plain, rows, places=places, model=D_MODEL)


def _ways(place: Topology) -> list[int]:
    """Return how many chips can split the width: powers of two."""
    return [2**power for power in range(place.chips.bit_length())]


def _mesh(place: Topology, tensor: int) -> dict[str, Any]:
    return place.mesh({"fsdp": place.chips // tensor, "tensor": tensor})


def _row(place: Topology, tensor: int, tokens: int, d_ff: int) -> dict[str, Any]:
    """Return a cut's row of the table that stands in for the script."""
    mesh = _mesh(place, tensor)
    one = training.layer(place, mesh, tokens=tokens, d_model=D_MODEL, d_ff=d_ff)
    return {
        "mesh": f"{place.chips // tensor} FSDP × {tensor} tensor",
        "products": si(one.products, "s"),
        "weights": si(one.gathers, "s"),
        "sums": si(one.sums, "s"),
        "bound": one.bound,
        "of the peak": percent(one.products / one.seconds),
    }


def _place(place: Topology) -> dict[str, Any]:
    """Return what the script needs to know of a slice: see assets/network.js."""
    shape = "×".join(str(n) for n in place.shape)
    return {
        "title": f"{place.chip.name.split()[1]}, {shape}",
        "chips": place.chips,
        "peak": place.chip.peak(DTYPE).value,
        "bits": BITS[DTYPE],
        "cuts": [_cut(place, tensor) for tensor in _ways(place)],
    }


def _cut(place: Topology, tensor: int) -> dict[str, float]:
    """Return a mesh, the seconds a byte of its exchanges, and whether they share links."""
    mesh, many = _mesh(place, tensor), 2.0**30
    gathered, split = network.all_gather(many, mesh["fsdp"]), mesh["tensor"]
    back = network.reduce_scatter(many, split).transfer
    return {
        "fsdp": place.chips // tensor,
        "tensor": tensor,
        "gather": gathered.transfer / many,
        "sums": (network.all_gather(many, split).transfer + back) / many,
        "shared": network.share_links(mesh["fsdp"], split),
    }


# --- The instrument for a reader's own kernel: counts, shapes, or the text of a compiled program -

YOUR_KERNEL: dict[str, Any] = {
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
    """Return an instrument: a reader's kernel under the roof of any chip, with a verdict.

    Takes FLOPs and bytes, or the shape of a matmul, of an elementwise kernel or of attention. The
    verdict says on what it depends.

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
    start = {**YOUR_KERNEL, **start_of(chip, dtype), "kind": "matmul"}
    roof = chip_of(chip).roofline(start["dtype"])
    job = work.matmul(YOUR_KERNEL["m"], YOUR_KERNEL["n"], YOUR_KERNEL["k"], start["dtype"])
    verdict = verdicts.verdict(
        job, chip, name=f"{YOUR_KERNEL['m']} × {YOUR_KERNEL['n']} × {YOUR_KERNEL['k']} matmul"
    )
    rows = [matmul_row(roof, start["dtype"], side) for side in (128, 512, 1024, 2048, 8192)]
    floors = {"tpu": verdicts.assumed_floor("tpu"), "other": verdicts.assumed_floor("gpu")}
    plain = (
        f"{repr(verdict).strip('<>')}. Square ones, N × N × N, on {roof.name}, published ceilings"
    )
    more: dict[str, Any] = {"floors": floors, "laws": _laws()}
    return instrument("your-kernel", key, title, start, plain, rows, **more)


def _laws() -> dict[str, dict[str, list[float]]]:
    """Return the constants of each chip's law of matmuls by data type, shapes and median error."""
    found: dict[str, dict[str, list[float]]] = {}
    for law in evidence.laws_of("matmul"):
        numbers = [law.start, law.compute, law.memory, law.corner, law.step]
        found.setdefault(law.chip, {})[law.dtype] = [*numbers, law.shapes, law.law.median]
    return found
