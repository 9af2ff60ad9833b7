"""Instruments and labs: models that run on the book's pages, held against the Python ones.

Their scripts are in `assets`, with the constants that `javascript` writes. `riddle` is the decode
step's 40 orders as a game.
"""

from __future__ import annotations

from roofline.labs.instruments import chain, matmul, point, ridges, sharding
from roofline.labs.labs import design_challenge, memory_wall

__all__ = ["chain", "matmul", "point", "ridges", "sharding", "design_challenge", "memory_wall"]
