"""Predictions held against what others and we measured, each with its error.

`collectives()` gives every measured collective beside the network model's time, and `scoreboard()`
every published training step beside the training model's.
"""

from roofline_helpers.published.exchanges import LARGE, collectives, reason
from roofline_helpers.published.steps import PublishedStep, published_step, scoreboard, steps

__all__ = [
    "collectives",
    "reason",
    "LARGE",
    "scoreboard",
    "steps",
    "published_step",
    "PublishedStep",
]
