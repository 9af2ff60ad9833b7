"""When a layout becomes bound by the network: batches and splits, in closed form."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from roofline_helpers import network
from roofline_helpers.common.checks import single, whole
from roofline_helpers.common.dtypes import dtype as dtype_of
from roofline_helpers.common.dtypes import width
from roofline_helpers.network import Axis, Topology
from roofline_helpers.training.step import matrix_rate


def least_tokens(place: Topology, over: Axis | Iterable[Axis], *, dtype: Any = "bf16") -> float:
    """Return the tokens a chip from which data parallelism over these axes hides its exchanges.

    A weight is gathered (or its gradient added up) while it is multiplied with t tokens: 2 t FLOPs
    for each of its elements, C / W tokens where W is the byte/s of a gather. The same for whole
    and for sharded weights. Of a mixture all E experts are gathered, and a token meets k of them,
    so that it takes E / k times as many.

    Parameters
    ----------
    place : Topology
        With its ceilings.
    over : Axis or axes
        Those that the batch is split over.
    dtype : str or data type
        Of products and weights.

    Raises
    ------
    BadType, BadValue, UnknownName
        Not axes of a topology; no such type on the chip.

    Source: jax-ml/scaling-book, "How to parallelize a Transformer for training".

    Examples
    --------
    >>> from roofline_helpers.network import topology
    >>> place = topology("v5p", "4x4x4")
    >>> round(least_tokens(place, place["x", "y", "z"]))
    753
    """
    name = dtype_of(dtype)
    elements = 1e9
    gathered = network.all_gather(elements * width(name), over)
    rate = matrix_rate(place.chip, name, place.ceilings)
    return gathered.transfer * rate / (2 * elements)


def most_tensor(
    place: Topology, over: Axis | Iterable[Axis], d_ff: float, *, dtype: Any = "bf16"
) -> float:
    """Return how many chips may split a feed-forward's width before the network bounds it.

    Two products with 4 B D F / Y FLOPs a chip against a gather and a scatter of B × D activations:
    Y = F W / C, whatever the batch, which is F over `least_tokens`.

    Parameters
    ----------
    place, over, dtype
        As in `least_tokens`; the same errors and source.
    d_ff : float
        F, the width that is split.

    Examples
    --------
    >>> from roofline_helpers.network import topology
    >>> place = topology("v5p", "4x4x4")
    >>> round(most_tensor(place, place["x"], d_ff=28672), 1)
    16.7
    """
    return single("d_ff", d_ff) / least_tokens(place, over, dtype=dtype)


def largest_tensor(place: Topology, d_ff: float) -> int:
    """Return the largest group that may split a feed-forward's width, with links of its own size.

    Of the groups of 2, 4, 8, … neighbours as `Topology.mesh` lays them out, the largest whose
    `most_tensor` is at least its own size; 1 if there is none.

    Parameters
    ----------
    place, d_ff
        As in `most_tensor`; the same errors and source.

    Examples
    --------
    >>> from roofline_helpers.network import topology
    >>> largest_tensor(topology("v5p", "4x4x4"), d_ff=28672)
    32
    """
    largest = size = 1
    while place.chips % (size := 2 * size) == 0:
        group = place.mesh({"fsdp": place.members // size, "tensor": size})["tensor"]
        if most_tensor(place, group, d_ff) >= size:
            largest = size
    return largest


def least_width(
    place: Topology,
    over: Axis | Iterable[Axis],
    *,
    matrices: int = 3,
    active: float | None = None,
    dtype: Any = "bf16",
) -> float:
    """Return the width of an expert from which its products hide the tokens' way to it and back.

    M products of F with 2 M F FLOPs for each element that is sent, twice: F = C / (M E), where E
    are the elements a second that an all-to-all takes from each chip. Neither the batch nor the
    number of experts counts, and of a torus only the longest axis.

    Parameters
    ----------
    place, dtype
        As in `least_tokens`; the same errors.
    over : Axis or axes
        Those that experts are spread over, tokens evenly among them.
    matrices : int
        M: 3 for experts with a gate, 2 without.
    active : float, optional
        Experts of a token. If given, a token is sent once to each chip that has some of them, in
        the mean to n (1 − (1 − 1/n)ᵏ); if not, once for each.

    Source: as `least_tokens`, with the bytes of `network.all_to_all`.

    Examples
    --------
    >>> from roofline_helpers.network import topology
    >>> place = topology("v5p", "4x4x4")
    >>> round(least_width(place, place["x"])), round(least_width(place, place["x"], active=8))
    (1530, 688)
    """
    name = dtype_of(dtype)
    elements = 1e9
    moved = network.all_to_all(elements * width(name), over)
    rate = matrix_rate(place.chip, name, place.ceilings)
    sent = 1.0
    if active is not None:
        sent = network.distinct(moved.devices, active) / single("active", active)
    return sent * moved.transfer * rate * moved.devices / (whole("matrices", matrices) * elements)
