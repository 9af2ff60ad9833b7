"""An instrument: a layer sharded over a slice, and the network's roof over it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from roofline import network, training
from roofline.labs.javascript import LAB
from roofline.network import Topology
from roofline_helpers.common.checks import BadValue, name_of, shown
from roofline_helpers.common.dtypes import BITS
from roofline_helpers.common.show import si
from roofline_helpers.pages.element import Element
from roofline_helpers.pages.instruments import instrument, percent

SLICES: Mapping[str, Any] = {
    "v5e": "16x16",
    "v5p": "4x4x4",
    "v6e": "16x16",
    "v7x": "4x4x4",
    "h100": 8,
    "h200": 8,
    "b200": 8,
}
"""The choices of the instrument: a slice or a host of each chip."""

D_MODEL, D_FF = 8192, 28672
DTYPE = "bf16"


def sharding(chip: str = "v5e", tensor: int = 1, tokens: int = 256) -> Element:
    """Return an instrument: a feed-forward layer sharded over a slice, under the network's roof.

    It shows attainable FLOP/s and the bound over tokens per chip, in bf16, at published ceilings
    and without latencies, as `training.layer`. The layer's other width is 8192, which doesn't
    change the bound.

    Parameters
    ----------
    chip : str
        One of `SLICES`.
    tensor : int
        Chips that split the width, a power of two; the others share the weights.
    tokens : int
        Tokens per chip.

    Raises
    ------
    BadValue, UnknownName
        No such chip; a number of chips that doesn't divide the slice.

    Examples
    --------
    >>> sharding("v5e").kind
    'sharding'
    """
    name = name_of("chip", chip, SLICES)
    place = network.topology(name, SLICES[name])
    if tensor not in _shardings(place):
        raise BadValue(f"tensor must be one of {_shardings(place)}, got {shown(tensor)}")
    rows = [_row(place, ways, tokens, D_FF) for ways in _shardings(place)]
    at = rows[_shardings(place).index(tensor)]
    plain = (
        f"{place.chips} {place.chip.name}, {at['mesh']}, {tokens} tokens a chip, width {D_FF}: "
        f"bound by {at['bound']}, at most {at['of the peak']} of the peak"
    )
    start = {"chip": name, "tensor": str(tensor), "tokens": tokens, "inner": D_FF}
    places = {one: _place(network.topology(one, shape)) for one, shape in SLICES.items()}
    title = "Drag until the roof breaks"
    return instrument(
        "sharding", title, start, plain, rows, bundle=LAB, places=places, model=D_MODEL
    )


def _shardings(place: Topology) -> list[int]:
    """Return the numbers of chips that can split the width: powers of two."""
    return [2**power for power in range(place.chips.bit_length())]


def _mesh(place: Topology, tensor: int) -> dict[str, Any]:
    return place.mesh({"fsdp": place.chips // tensor, "tensor": tensor})


def _row(place: Topology, tensor: int, tokens: int, d_ff: int) -> dict[str, Any]:
    """Return a sharding's row of the fallback table."""
    mesh = _mesh(place, tensor)
    one = training.layer(place, mesh, tokens=tokens, d_model=D_MODEL, d_ff=d_ff)
    return {
        "mesh": f"{place.chips // tensor} FSDP × {tensor} tensor",
        "matmuls": si(one.products, "s"),
        "weights": si(one.gathers, "s"),
        "sums": si(one.sums, "s"),
        "bound": one.bound,
        "of the peak": percent(one.products / one.seconds),
    }


def _place(place: Topology) -> dict[str, Any]:
    """Return the script's data of a slice: see assets/network.js."""
    shape = "×".join(str(n) for n in place.shape)
    return {
        "title": f"{place.chip.name.split()[1]}, {shape}",
        "chips": place.chips,
        "peak": place.chip.peak(DTYPE).value,
        "bits": BITS[DTYPE],
        "cuts": [_cut(place, tensor) for tensor in _shardings(place)],
    }


def _cut(place: Topology, tensor: int) -> dict[str, float]:
    """Return a mesh, the seconds per byte of its exchanges, and whether they share links."""
    mesh, many = _mesh(place, tensor), 2.0**30
    gathered, split = network.all_gather(many, mesh["fsdp"]), mesh["tensor"]
    back = network.reduce_scatter(many, split).transfer
    return {
        "fsdp": place.chips // tensor,
        "tensor": tensor,
        "gather": gathered.transfer / many,
        "sums": (network.all_gather(many, split).transfer + back) / many,
        "shared": network.axes.share_links(mesh["fsdp"], split),
    }
