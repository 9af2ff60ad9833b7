"""A feed-forward layer sharded over a mesh, and the network's roof over it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from roofline import network
from roofline.network import Topology
from roofline.network.axes import Mesh
from roofline.training.step import matrix_rate
from roofline_helpers.common.checks import BadValue, name_of, single
from roofline_helpers.common.show import Facts, si

CUTS = ("fsdp", "tensor")
"""Mesh axes of a layer: weights are sharded over the first, its width is split over the second."""


@dataclass(frozen=True, repr=False)
class Layer(Facts):
    """One chip's feed-forward pass: compute and exchange times.

    `flops` are the chip's own. `products` are the seconds of its two matmuls, `gathers` those of
    the all-gathers of both matrices, `sums` those of the activations' all-gather and
    reduce-scatter, without latency. If `shared`, both use the same links, one after the other.

    Examples
    --------
    >>> Layer(flops=1e12, products=2e-3, gathers=1e-3, sums=0.0).bound
    'compute'
    """

    flops: float
    products: float
    gathers: float
    sums: float
    shared: bool = False

    def _title(self) -> str:
        return "layer"

    def _facts(self) -> dict[str, str]:
        return {
            "FLOPs": f"{si(self.flops, 'FLOP')} a chip in {si(self.products, 's')}",
            "weights": f"weights in {si(self.gathers, 's')}",
            "sums": f"sums in {si(self.sums, 's')}",
            "bound": f"bound by {self.bound}",
        }

    @property
    def seconds(self) -> float:
        """Seconds if matmuls and exchanges overlap, with each exchange on all of its links."""
        return max(self.products, self.exchanges)

    @property
    def exchanges(self) -> float:
        """Seconds of both exchanges – at the same time, or in turn on shared links."""
        return self.gathers + self.sums if self.shared else max(self.gathers, self.sums)

    @property
    def bound(self) -> str:
        """The longest part – "compute", or the exchange of "weights" or "sums"."""
        if self.products >= self.exchanges:
            return "compute"
        return "weights" if self.gathers >= self.sums else "sums"

    @property
    def attainable(self) -> float:
        """Most FLOP/s per chip."""
        return self.flops / self.seconds


def layer(
    topology: Topology,
    mesh: Mesh,
    *,
    tokens: float,
    d_model: float,
    d_ff: float,
) -> Layer:
    """Return a forward pass of a feed-forward layer in bf16, sharded over a mesh.

    With t tokens per chip and Y chips that split the width: 4 t D F FLOPs per chip; two matrices of
    D F / Y gathered over the "fsdp" axes; t Y D activations gathered and scattered over the others.

    Parameters
    ----------
    topology : Topology
    mesh : mapping of str to axes
        `Topology.mesh` of `CUTS`.
    tokens : float
        Tokens of the batch over the number of chips.
    d_model, d_ff : float
        D and F.

    Raises
    ------
    BadType, BadValue, UnknownName
        Not positive numbers; a mesh axis for something else; no such type on the chip.

    Source: jax-ml/scaling-book, "How to parallelize a Transformer for training".

    Examples
    --------
    >>> from roofline.network import topology
    >>> slice_ = topology("v5e", "4x4")
    >>> mesh = slice_.mesh({"fsdp": 16})
    >>> layer(slice_, mesh, tokens=65536, d_model=8192, d_ff=28672).bound
    'compute'
    """
    for name in mesh:
        name_of("mesh axis of a layer", name, CUTS)
    rows, width, inner = single("tokens", tokens), single("d_model", d_model), single("d_ff", d_ff)
    weights, split = mesh.get("fsdp", ()), mesh.get("tensor", ())
    parts = math.prod(axis.size for axis in split)
    if inner < parts:
        raise BadValue(f"{parts} chips can't split a width of {inner:g}")
    element = 2  # bytes
    flops = 4 * rows * width * inner
    matrix = network.all_gather(element * width * inner / parts, weights)
    activations = element * rows * parts * width
    gathered = network.all_gather(activations, split)
    scattered = network.reduce_scatter(activations, split)
    return Layer(
        flops,
        flops / matrix_rate(topology, "bf16"),
        2 * matrix.transfer,
        gathered.transfer + scattered.transfer,
        network.axes.share_links(weights, split),
    )
