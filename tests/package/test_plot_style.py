"""Colours that everyone can tell apart, and defaults that are set on request only."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from roofline_helpers import plot

pytestmark = pytest.mark.usefixtures("own_style")


# Machado, Oliveira, Fernandes 2009 (doi:10.1109/TVCG.2009.113), severity 1, on linear RGB
SIGHT = {
    "normal": np.eye(3),
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
}


def linear(color):
    c = np.array(to_rgb(color))
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def contrast(a, b):
    lights = sorted(float(linear(c) @ [0.2126, 0.7152, 0.0722]) for c in (a, b))
    return (lights[1] + 0.05) / (lights[0] + 0.05)


def lab(color, sight):
    rgb = np.clip(np.array(SIGHT[sight]) @ linear(color), 0, 1)
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    xyz = np.array(to_xyz) @ rgb / [0.9505, 1, 1.089]
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def nearest(colors, sight):
    points = [lab(color, sight) for color in colors]
    return min(np.linalg.norm(a - b) for a, b in itertools.combinations(points, 2))


@pytest.mark.parametrize("sight", SIGHT)
def test_colours_stay_apart(sight):
    assert nearest(plot.PALETTE["series"], sight) >= 15
    roles = [plot.PALETTE[role] for role in ("memory", "compute", "ridge")]
    assert nearest(roles, sight) >= 15
    levels = [*plot.PALETTE["levels"], plot.PALETTE["compute"]]
    assert nearest(levels, sight) >= 10
    assert nearest(["#00ff00", "#00ff01", "#ff0000"], sight) < 2  # the measure itself


def test_texts_and_lines_stand_out_from_the_paper():
    paper = plot.PALETTE["paper"]
    for role in ("ink", "muted", "memory", "compute", "network", "ridge"):
        assert contrast(plot.PALETTE[role], paper) >= 4.5, role
    for color in plot.PALETTE["levels"]:
        assert contrast(color, paper) >= 4.5
    for color in plot.PALETTE["series"]:
        assert contrast(color, paper) >= 3  # lines and markers; their names are in ink


# --- style ---------------------------------------------------------------------------------------
