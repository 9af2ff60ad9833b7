"""The roofline model: how fast a kernel can be, and its bound.

Nothing here knows a chip or an operation. A `Roofline` is a peak (FLOP/s), the bandwidth of one or
more memory levels (byte/s) and, where they are known, a second peak for the vector unit, the
bandwidth of the network, and the floor: the seconds of a launch. Anything `Counted` can be compared
with it: FLOPs by unit, and bytes by memory level, as `roofline_helpers.work` counts them by hand
and `roofline_helpers.xla` reads them from a compiled program. A `Kernel` is such a count on a
roofline, launched once or many times.

Source: S. Williams, A. Waterman, D. Patterson, "Roofline: an insightful visual performance model
for multicore architectures", Communications of the ACM 52(4), 2009, doi:10.1145/1498765.1498785.
"""

from roofline_helpers.roofline.model import Counted, Kernel, Roofline

__all__ = ["Counted", "Roofline", "Kernel"]
