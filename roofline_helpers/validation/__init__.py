"""Predictions compared with what others and we measured, each with its error.

`collectives()` gives every measured collective with the network model's time, `layers()` the layers
that we measured on several devices with theirs, and `scoreboard()` every published training and
decode step with what `training` and `serving` predict. An error above `LARGE`, a
share, needs a reason. `rivals` compares predictions with simpler guesses on recipes that were left
out, and `predict()` reads a reader's own steps from a file. A row is a TOML block of
`data/published`.
"""

from roofline_helpers.validation.board import published_step, scoreboard, steps, worst
from roofline_helpers.validation.exchanges import LARGE, collectives
from roofline_helpers.validation.layers import layers
from roofline_helpers.validation.own_steps import predict
from roofline_helpers.validation.steps import PublishedDecode, PublishedStep

__all__ = [
    "LARGE",
    "collectives",
    "layers",
    "scoreboard",
    "steps",
    "published_step",
    "worst",
    "predict",
    "PublishedStep",
    "PublishedDecode",
]
