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
    topology = network.topology(name, SLICES[name])
    if tensor not in _shardings(topology):
        raise BadValue(f"tensor must be one of {_shardings(topology)}, got {shown(tensor)}")
    rows = [_row(topology, split, tokens, D_FF) for split in _shardings(topology)]
    row = rows[_shardings(topology).index(tensor)]
    plain = (
        f"{topology.chips} {topology.chip.name}, {row['mesh']}, {tokens} tokens a chip, "
        f"width {D_FF}: bound by {row['bound']}, at most {row['of the peak']} of the peak"
    )
    start = {"chip": name, "tensor": str(tensor), "tokens": tokens, "inner": D_FF}
    slices = {key: _slice(network.topology(key, shape)) for key, shape in SLICES.items()}
    title = "Drag until the roof breaks"
    return instrument(
        "sharding", title, start, plain, rows, bundle=LAB, places=slices, model=D_MODEL
    )


def _shardings(topology: Topology) -> list[int]:
    """Return the numbers of chips that can split the width: powers of two."""
    return [2**power for power in range(topology.chips.bit_length())]


def _mesh(topology: Topology, tensor: int) -> dict[str, Any]:
    return topology.mesh({"fsdp": topology.chips // tensor, "tensor": tensor})


def _row(topology: Topology, tensor: int, tokens: int, d_ff: int) -> dict[str, Any]:
    """Return a sharding's row of the fallback table."""
    mesh = _mesh(topology, tensor)
    layer = training.layer(topology, mesh, tokens=tokens, d_model=D_MODEL, d_ff=d_ff)
    return {
        "mesh": f"{topology.chips // tensor} FSDP × {tensor} tensor",
        "matmuls": si(layer.products, "s"),
        "weights": si(layer.gathers, "s"),
        "sums": si(layer.sums, "s"),
        "bound": layer.bound,
        "of the peak": percent(layer.products / layer.seconds),
    }


def _slice(topology: Topology) -> dict[str, Any]:
    """Return the script's data of a slice: see assets/network.js."""
    shape = "×".join(str(n) for n in topology.shape)
    return {
        "title": f"{topology.chip.name.split()[1]}, {shape}",
        "chips": topology.chips,
        "peak": topology.chip.peak(DTYPE).value,
        "bits": BITS[DTYPE],
        "cuts": [_cut(topology, tensor) for tensor in _shardings(topology)],
    }


def _cut(topology: Topology, tensor: int) -> dict[str, float]:
    """Return a mesh, the seconds per byte of its exchanges, and whether they share links."""
    mesh, many = _mesh(topology, tensor), 2.0**30
    gathered, split = network.all_gather(many, mesh["fsdp"]), mesh["tensor"]
    back = network.reduce_scatter(many, split).transfer
    return {
        "fsdp": topology.chips // tensor,
        "tensor": tensor,
        "gather": gathered.transfer / many,
        "sums": (network.all_gather(many, split).transfer + back) / many,
        "shared": network.axes.share_links(mesh["fsdp"], split),
    }
