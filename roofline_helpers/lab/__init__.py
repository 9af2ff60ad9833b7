"""The interactive pieces with a roofline in them: six instruments and two labs.

Each function returns an element that shows itself in notebooks and on the published page, where it
needs no kernel and no network. Without JavaScript there is a table in its place, and in the labs a
figure and the question with its answer. The numbers come from `work`, `roofline`, `training` and
`serving`, here and in the browser; `ask` makes the questions.

>>> print(matmul("h100", 512))
512 × 512 × 512 matmul in bf16 on NVIDIA H100 SXM: 171 FLOP/byte, memory-bound, at most 572 TFLOP/s
"""

from __future__ import annotations

from roofline_helpers.lab.design import design_challenge
from roofline_helpers.lab.instruments import LARGEST_SIDE, chain, matmul, point, ridges
from roofline_helpers.lab.pasted import your_kernel
from roofline_helpers.lab.sharding import SLICES, sharding
from roofline_helpers.lab.wall import memory_wall

__all__ = [
    "LARGEST_SIDE",
    "point",
    "ridges",
    "matmul",
    "chain",
    "sharding",
    "SLICES",
    "your_kernel",
    "memory_wall",
    "design_challenge",
]
