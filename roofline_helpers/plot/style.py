"""How the book's pictures look: colours, markers, fonts, and numbers short enough for a tick."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import matplotlib as mpl
import numpy as np
from cycler import cycler
from matplotlib.colors import to_rgb
from matplotlib.patheffects import withStroke

from roofline_helpers.show import si, significant, use_tables

PALETTE: Mapping[str, Any] = {
    "paper": "#ffffff",
    "ink": "#1f1f1f",
    "muted": "#595959",
    "grid": "#e3e3e3",
    "memory": "#0072b2",
    "compute": "#b8480b",
    "network": "#8a3f7c",
    "ridge": "#1f1f1f",
    "levels": ("#0072b2", "#204f3f", "#652910"),
    "series": ("#0062af", "#ff4918", "#1f1f1f", "#62a328", "#b8568f", "#4f9bd6", "#088b5d"),
}
"""Colours by role; "series" is for lines that have no role: any two stay apart (CIELAB distance
18 or more) for readers with normal, deuteranopic and protanopic sight."""

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h", "*")
"""Marker of each series: colour alone never tells two apart."""

SIZE = (5.8, 4.2)
"""Inches of a figure that `use_style` sets."""

LINES = ("-", "--", "-.", ":")
"""Line style of each further round of series."""

SMALL = 9.5
"""Points of ticks, legends and names in a picture."""


def use_style() -> None:
    """Give figures and tables the book's look: fonts, colours, size, repeatable PNGs.

    In IPython, inline pictures become sharp ("retina") and carry no version in their metadata, and
    tables of pandas are shown as `show.reading` formats them.
    Importing this module changes nothing; only this call does.

    Examples
    --------
    >>> import matplotlib
    >>> with matplotlib.rc_context():
    ...     use_style()
    """
    mpl.rcParams.update(
        {
            "figure.figsize": SIZE,
            "figure.dpi": 100,
            "figure.constrained_layout.use": True,
            "figure.facecolor": PALETTE["paper"],
            "savefig.facecolor": PALETTE["paper"],
            "axes.facecolor": PALETTE["paper"],
            "axes.edgecolor": PALETTE["muted"],
            "axes.labelcolor": PALETTE["ink"],
            "axes.prop_cycle": cycler(color=PALETTE["series"]),
            "axes.spines.top": False,
            "axes.spines.right": False,
            "text.color": PALETTE["ink"],
            "xtick.color": PALETTE["ink"],
            "ytick.color": PALETTE["ink"],
            "grid.color": PALETTE["grid"],
            "font.size": 10,
            "axes.labelsize": 10,
            "axes.titlesize": 11,
            "xtick.labelsize": SMALL,
            "ytick.labelsize": SMALL,
            "legend.fontsize": SMALL,
            "legend.frameon": False,
            "svg.hashsalt": "roofline_helpers",
        }
    )
    ipython = sys.modules.get("IPython")
    if ipython is not None and ipython.get_ipython() is not None:
        from matplotlib_inline.backend_inline import set_matplotlib_formats

        set_formats: Any = set_matplotlib_formats
        set_formats("retina", metadata={"Software": None})
        use_tables()


def look_of(i: int) -> dict[str, Any]:
    """Return colour, marker and line style of series i."""
    series = PALETTE["series"]
    return {
        "color": series[i % len(series)],
        "marker": MARKERS[i % len(MARKERS)],
        "ls": LINES[i // len(series) % len(LINES)],
    }


def halo(width: float = 2.5) -> list[Any]:
    """Return the path effect that keeps a text readable on lines."""
    return [withStroke(linewidth=width, foreground=PALETTE["paper"])]


def short_number(value: float) -> str:
    """Return a number for a tick: 0.01, 1, 1000, 10k, 1M."""
    for limit, letter in ((1e9, "G"), (1e6, "M"), (9.999e3, "k")):
        if abs(value) >= limit * 0.9999:
            return f"{significant(value / {'G': 1e9, 'M': 1e6, 'k': 1e3}[letter])}{letter}"
    return (
        significant(value).replace(",", "") if abs(value) >= 1e-4 or not value else f"{value:.0e}"
    )


def rate_text(value: float) -> str:
    """Return FLOP/s as the axes have it: TFLOP/s, or GFLOP/s below one of them."""
    prefix = "T" if value >= 1e12 else "G"
    return si(value, "FLOP/s", prefix, 4).replace(",", "")


def percent_text(share: float) -> str:
    """Return a share in percent without its sign: "42", "4.2", "<0.1"."""
    if np.isnan(share):
        return "–"
    percent = 100 * share
    return f"{percent:.0f}" if percent >= 9.95 else f"{percent:.1f}" if percent >= 0.05 else "<0.1"


def tint(color: str, strength: float) -> tuple[float, ...]:
    """Return a colour mixed with paper."""
    mix = np.array(to_rgb(color)) * strength + np.array(to_rgb(PALETTE["paper"])) * (1 - strength)
    return tuple(float(c) for c in mix)


def contrast(a: Any, b: Any) -> float:
    """Return the contrast of two colours as WCAG 2 defines it, 1 to 21."""

    def luminance(color: Any) -> float:
        c = np.array(to_rgb(color))
        linear = np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)
