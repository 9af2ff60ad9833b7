"""Colours that everyone can tell apart, and defaults that are set on request only."""

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from roofline_helpers import plot

pytestmark = pytest.mark.usefixtures("own_style")


def linear(color):
    c = np.array(to_rgb(color))
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def contrast(a, b):
    lights = sorted(float(linear(c) @ [0.2126, 0.7152, 0.0722]) for c in (a, b))
    return (lights[1] + 0.05) / (lights[0] + 0.05)


def test_texts_and_lines_stand_out_from_the_paper():
    paper = plot.PALETTE["paper"]
    for role in ("ink", "muted", "memory", "compute", "network", "ridge"):
        assert contrast(plot.PALETTE[role], paper) >= 4.5, role
    for color in plot.PALETTE["levels"]:
        assert contrast(color, paper) >= 4.5
    for color in plot.PALETTE["series"]:
        assert contrast(color, paper) >= 3  # lines and markers; their names are in ink


# --- style ---------------------------------------------------------------------------------------
