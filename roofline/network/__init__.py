"""Chips joined by links: topologies, and the time of collectives on them, counted by hand.

A topology is a list of axes: those of a TPU slice's torus, the switch of a GPU host or of an NVLink
domain, and the slower network between slices, hosts or domains: 256 GB200 are four domains of 64,
with a card of 400 Gbit/s for each GPU. Chips without a published rate between hosts are refused.

A collective over one or more axes has a number of steps, and a number of bytes on the busiest link;
its time is ::

    latency + bytes / rate          (the α–β model)

where the latency counts each step once. With ``ceilings="published"`` rates and latencies are the
vendor's, and the time is a lower bound. With ``ceilings="reached"`` they are from measured curves
(`data/network.toml` names the rows), and the time is a prediction. Left out are contention with
other traffic, the memory's own time, arithmetic of reductions on TPUs, twisted tori, and in the
bound of a switch its latency, which nobody publishes.

>>> slice_ = topology("v5p", "4x4x4")
>>> gather = all_gather(2 * 1024 * 4096, slice_["x", "y", "z"])
>>> f"{gather.seconds * 1e6:.0f} µs, {gather.link_bytes / 1e6:.2f} MB over the busiest link"
'20 µs, 1.38 MB over the busiest link'

Sources: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations
in MPICH", IJHPCA 19(1), 2005 (α–β, rings, trees); jax-ml/scaling-book, "Sharded matrices and how to
multiply them" (tori); B. Klenk et al., ISCA 2020 (reductions in the switch).
"""

from roofline.network.axes import Axis
from roofline.network.collectives import (
    COLLECTIVES,
    Collective,
    all_gather,
    all_reduce,
    all_to_all,
    collective,
    distinct,
    permute,
    reduce_scatter,
)
from roofline.network.topology import CEILINGS as CEILINGS
from roofline.network.topology import Topology, topology

__all__ = [
    "COLLECTIVES",
    "topology",
    "Topology",
    "Axis",
    "distinct",
    "collective",
    "all_gather",
    "reduce_scatter",
    "all_reduce",
    "all_to_all",
    "permute",
    "Collective",
]
