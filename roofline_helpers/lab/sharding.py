"""An instrument: a layer cut over a slice, and the network's roof over it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from roofline_helpers import network, training
from roofline_helpers._checks import BadValue, name_of, shown, whole
from roofline_helpers.ask import Element
from roofline_helpers.dtypes import BITS
from roofline_helpers.lab.shared import instrument, percent
from roofline_helpers.network import Topology
from roofline_helpers.show import si

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
