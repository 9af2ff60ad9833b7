"""Labs, and a sharded layer: models that run on the book's pages, held against the Python ones.

Their scripts are in `assets`, with the constants that `javascript` writes, on top of those of the
instruments in `roofline_helpers.pages`. `mfu` is a training run's MFU, `judging` a kernel's
measured time, `riddle` is the decode step's 40 orders as a game.
"""

from __future__ import annotations

from roofline.labs.labs import design_challenge, memory_wall
from roofline.labs.mfu import training_mfu
from roofline.labs.shardings import sharding

__all__ = ["design_challenge", "memory_wall", "sharding", "training_mfu"]
