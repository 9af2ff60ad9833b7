"""Predictions compared with measurements, ours and others', each with its error.

`collectives()` gives every measured collective with the network model's time, `layers()` our
measured layers on several devices, and `scoreboard()` every published training and decode step with
the predictions of `training` and `serving`. `rivals` compares predictions with simpler ones on
recipes that were left out, and `predict()` reads a reader's own steps from a file. A row is a TOML
block of `data/published`.
"""

from roofline.validation.board import published_step, scoreboard, steps, worst
from roofline.validation.exchanges import LARGE, collectives
from roofline.validation.layers import layers
from roofline.validation.own_steps import predict
from roofline.validation.steps import PublishedDecode, PublishedStep

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
