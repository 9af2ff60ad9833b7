"""Predictions compared with measurements, ours and others', each with its error.

`collectives()` gives every measured collective with the network model's time, `layers()` our
measured layers on several devices, and `scoreboard()` every published training and decode step with
the predictions of `training` and `serving`. `served()` has served requests with the predictions of
`serving.load`, and `kinds()` the errors of both by kind. `rivals` compares predictions with simpler
ones on recipes that were left out, `predict()` reads a reader's own steps from a file, and `mfu()`
says what a training run uses. A row is a TOML block of `data/published`, or a line of its
`served.csv`.
"""

from roofline.validation.board import kinds, published_step, scoreboard, steps, worst
from roofline.validation.layers import layers
from roofline.validation.loads import compare, points, served
from roofline.validation.networks import LARGE, collectives
from roofline.validation.own_steps import predict
from roofline.validation.published_steps import PublishedDecode, PublishedStep
from roofline.validation.utilization import Utilization, mfu

__all__ = [
    "LARGE",
    "collectives",
    "layers",
    "scoreboard",
    "steps",
    "published_step",
    "worst",
    "predict",
    "points",
    "compare",
    "served",
    "kinds",
    "mfu",
    "Utilization",
    "PublishedStep",
    "PublishedDecode",
]
