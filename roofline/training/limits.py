"""The batches and splits at which a layout becomes network-bound, in closed form."""

from __future__ import annotations

import math

from roofline import network
from roofline.network import Topology
from roofline.network.axes import Over
from roofline.training.step import matrix_rate
from roofline_helpers.common.checks import single

_ELEMENT = 2
"""Bytes, in bf16."""

_MATRICES = 3
"""Of an expert with a gate."""


def least_tokens(topology: Topology, over: Over) -> float:
    """Return the fewest tokens per chip at which compute hides data-parallel exchanges, in bf16.

    While a weight is gathered, or its gradient reduced, it is multiplied with t tokens: 2 t FLOPs
    per element. So t is C / W for 2-byte weights, with the peak C and the byte/s W of a gather. In
    a mixture of experts all E experts are gathered but a token uses only k, so t is E / k times as
    large.

    Parameters
    ----------
    topology : Topology
    over : Axis or axes
        Axes over which the batch is split.

    Raises
    ------
    BadType, BadValue, UnknownName
        Not axes of a topology; no bf16 on the chip.

    Source: jax-ml/scaling-book, "How to parallelize a Transformer for training".

    Examples
    --------
    >>> from roofline.network import topology
    >>> cube = topology("v5p", "4x4x4")
    >>> round(least_tokens(cube, cube["x", "y", "z"]))
    753
    """
    elements = 1e9
    gathered = network.all_gather(_ELEMENT * elements, over)
    return gathered.transfer * matrix_rate(topology, "bf16") / (2 * elements)


def most_tensor(topology: Topology, over: Over, d_ff: float) -> float:
    """Return the largest tensor-parallel degree before the network is the bound.

    Two matmuls of 4 B D F / Y FLOPs per chip run against an all-gather and a reduce-scatter of B ×
    D activations. So Y = F W / C, which is F over `least_tokens`, for any batch.

    Parameters
    ----------
    topology, over
        As in `least_tokens`; the same errors and source.
    d_ff : float
        F, the width that is split.

    Examples
    --------
    >>> from roofline.network import topology
    >>> cube = topology("v5p", "4x4x4")
    >>> round(most_tensor(cube, cube["x"], d_ff=28672), 1)
    16.7
    """
    width, fewest = single("d_ff", d_ff), least_tokens(topology, over)
    return width / fewest if fewest else math.inf


def largest_tensor(topology: Topology, d_ff: float) -> int:
    """Return the largest power-of-two group that stays within `most_tensor` on its own links.

    Groups are neighbours as `Topology.mesh` lays them out; 1 if there is none.

    Examples
    --------
    >>> from roofline.network import topology
    >>> largest_tensor(topology("v5p", "4x4x4"), d_ff=28672)
    32
    """
    largest = size = 1
    while topology.members % (size := 2 * size) == 0:
        group = topology.mesh({"fsdp": topology.members // size, "tensor": size})["tensor"]
        if most_tensor(topology, group, d_ff) >= size:
            largest = size
    return largest


def least_width(topology: Topology, over: Over, *, active: float | None = None) -> float:
    """Return the smallest expert width at which expert matmuls hide the all-to-all, in bf16.

    Three matmuls of width F are 6 F FLOPs for each element, which is sent twice: F = C / (3 E),
    with the E elements per second that an all-to-all takes from each chip. Neither the batch nor
    the number of experts matters, and of a torus only the longest axis.

    Parameters
    ----------
    topology
        As in `least_tokens`; the same errors and source.
    over : Axis or axes
        Axes over which experts are spread, with tokens evenly among them.
    active : float, optional
        Experts per token. If given, a token is sent once to each chip that holds any of them
        (`network.distinct`), otherwise once for each expert.

    Examples
    --------
    >>> from roofline.network import topology
    >>> cube = topology("v5p", "4x4x4")
    >>> round(least_width(cube, cube["x"])), round(least_width(cube, cube["x"], active=8))
    (1530, 688)
    """
    elements = 1e9
    moved = network.all_to_all(_ELEMENT * elements, over)
    sent = 1.0
    if active is not None:
        sent = network.distinct(moved.devices, active) / single("active", active)
    rate = matrix_rate(topology, "bf16")
    return sent * moved.transfer * rate * moved.devices / (_MATRICES * elements)
