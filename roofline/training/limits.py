"""The batches and splits at which a layout becomes network-bound, in closed form."""

from __future__ import annotations

from typing import Any

from roofline import network
from roofline.network import Topology
from roofline.network.axes import Over
from roofline.training.step import matrix_rate
from roofline_helpers.common.checks import single, whole
from roofline_helpers.common.dtypes import dtype as dtype_of
from roofline_helpers.common.dtypes import width


def least_tokens(topology: Topology, over: Over, *, dtype: Any = "bf16") -> float:
    """Return the fewest tokens per chip at which compute hides data-parallel exchanges.

    While a weight is gathered, or its gradient reduced, it is multiplied with t tokens: 2 t FLOPs
    per element. So t is C / W for 2-byte weights, with the peak C and the byte/s W of a gather. In
    a mixture of experts all E experts are gathered but a token uses only k, so t is E / k times as
    large.

    Parameters
    ----------
    topology : Topology
    over : Axis or axes
        Axes over which the batch is split.
    dtype : str or data type
        Of matmuls and weights.

    Raises
    ------
    BadType, BadValue, UnknownName
        Not axes of a topology; no such type on the chip.

    Source: jax-ml/scaling-book, "How to parallelize a Transformer for training".

    Examples
    --------
    >>> from roofline.network import topology
    >>> cube = topology("v5p", "4x4x4")
    >>> round(least_tokens(cube, cube["x", "y", "z"]))
    753
    """
    name = dtype_of(dtype)
    elements = 1e9
    gathered = network.all_gather(elements * width(name), over)
    rate = matrix_rate(topology, name)
    return gathered.transfer * rate / (2 * elements)


def most_tensor(topology: Topology, over: Over, d_ff: float, *, dtype: Any = "bf16") -> float:
    """Return the largest tensor-parallel degree before the network is the bound.

    Two matmuls of 4 B D F / Y FLOPs per chip run against an all-gather and a reduce-scatter of
    B × D activations. So Y = F W / C, which is F over `least_tokens`, for any batch.

    Parameters
    ----------
    topology, over, dtype
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
    return single("d_ff", d_ff) / least_tokens(topology, over, dtype=dtype)


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
    while topology.chips % (size := 2 * size) == 0:
        group = topology.mesh({"fsdp": topology.members // size, "tensor": size})["tensor"]
        if most_tensor(topology, group, d_ff) >= size:
            largest = size
    return largest


def least_width(
    topology: Topology,
    over: Over,
    *,
    matrices: int = 3,
    active: float | None = None,
    dtype: Any = "bf16",
) -> float:
    """Return the smallest expert width at which expert matmuls hide the all-to-all.

    M matmuls of width F are 2 M F FLOPs for each element, which is sent twice: F = C / (M E), with
    the E elements per second that an all-to-all takes from each chip. Neither the batch nor the
    number of experts matters, and of a torus only the longest axis.

    Parameters
    ----------
    topology, dtype
        As in `least_tokens`; the same errors and source.
    over : Axis or axes
        Axes over which experts are spread, with tokens evenly among them.
    matrices : int
        M: 3 for experts with a gate, 2 without.
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
    name = dtype_of(dtype)
    elements = 1e9
    moved = network.all_to_all(elements * width(name), over)
    rate = matrix_rate(topology, name)
    sent = 1.0
    if active is not None:
        sent = network.distinct(moved.devices, active) / single("active", active)
    return sent * moved.transfer * rate * moved.devices / (whole("matrices", matrices) * elements)
