"""Lines over a common x, and bytes as bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from roofline_helpers.common.checks import BadValue, mapping, quantity, single
from roofline_helpers.common.show import PREFIXES, si
from roofline_helpers.plot.labels import name_at_margin
from roofline_helpers.plot.style import (
    LINES,
    PALETTE,
    AtDraw,
    as_list,
    axes_for,
    figure_of,
    grid_behind,
    log_scale,
    look_of,
    note,
    point_of,
    short_number,
    size_of,
    tint,
)
from roofline_helpers.work import Work

# --- Lines, and bytes as bars --------------------------------------------------------------------

BAR = 0.62
"""Height of a bar, in rows."""


def lines(
    x: Any,
    series: Mapping[str, Any],
    *,
    hlines: Mapping[str, float] | None = None,
    logy: bool = True,
    marked: bool = True,
    xlabel: str = "",
    ylabel: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Draw lines over a common x, and horizontal lines, each named at its right end.

    Parameters
    ----------
    x : array
    series : mapping of str to array
        One line each, as long as `x`.
    hlines : mapping of str to number, optional
        Thresholds, for instance ridges.
    logy : bool
        Whether the vertical axis is logarithmic too.
    marked : bool
        Whether lines have markers, or differ by dashes: for measured points drawn over them.

    Raises
    ------
    BadType, BadValue
        Not numbers, not positive, not mappings, or a series that is not as long as `x`.

    Examples
    --------
    >>> lines([1, 10, 100], {"N": [1, 10, 100]}, xlabel="N").get_xlabel()
    'N'
    """
    across = np.atleast_1d(np.asarray(quantity("x", x), dtype=float))
    if across.size < 2 or across.ndim != 1:
        raise BadValue(f"x must be a list of two numbers or more, got {across.size}")
    curves = {}
    for label, values in mapping("series", series).items():
        curves[label] = np.asarray(quantity(label, values, zero=not logy), dtype=float)
        if curves[label].shape != across.shape:
            raise BadValue(f"{label} has shape {curves[label].shape}, x has {across.shape}")
    if not curves:
        raise BadValue("at least one series is needed, got none")
    levels = {label: single(label, y) for label, y in mapping("hlines", hlines or {}).items()}
    ax = axes_for(ax)
    for axis in (ax.xaxis, ax.yaxis) if logy else (ax.xaxis,):
        log_scale(axis)
    ax.set(xlabel=xlabel, ylabel=ylabel)
    margin = []
    for i, (label, values) in enumerate(curves.items()):
        look = look_of(i) if marked else look_of(i) | {"marker": "", "ls": LINES[i % len(LINES)]}
        every = max(1, across.size // 8)
        look |= {"lw": 1.8, "ms": 5, "markevery": (i % every, every)}
        ax.plot(across, values, gid=f"series:{label}", **look)
        margin.append((float(values[np.argmax(across)]), label, look["color"]))
    for label, y in levels.items():
        ax.axhline(y, color=PALETTE["muted"], lw=1, ls=(0, (4, 2)), gid=f"hline:{label}")
        margin.append((y, label, PALETTE["muted"]))
    ax.set_xlim(across.min(), across.max())
    grid_behind(ax)
    name_at_margin(ax, margin)
    return ax


def traffic(variants: Mapping[str, Work | Sequence[Work]], *, ax: Axes | None = None) -> Axes:
    """Draw the bytes that each variant moves, tensor by tensor, as stacked horizontal bars.

    Each tensor has a colour; written bytes are hatched. A thick line separates two kernels; the
    total is at the end of the bar.

    Parameters
    ----------
    variants : mapping of str to Work or sequence of Work
        The kernels of each variant.

    Raises
    ------
    BadType, BadValue
        No variant, or something that is not a kernel.

    Examples
    --------
    >>> from roofline_helpers.work import matmul
    >>> traffic({"one": matmul(512, 512, 512)}).get_yticklabels()[0].get_text()
    'one'
    """
    bars = {name: _pieces(kernels) for name, kernels in mapping("variants", variants).items()}
    if not bars:
        raise BadValue("at least one variant is needed, got none")
    largest = max(sum(piece.bytes for piece in row) for row in bars.values())
    pieces = [piece for row in bars.values() for piece in row]
    # thinner bars would be invisible: they have no colour
    wide = [piece.tensor for piece in pieces if piece.bytes >= 0.004 * largest]
    tensors = list(dict.fromkeys(wide))
    # the series' second blue is replaced by yellow, since two blues look alike as tints
    colors = (*PALETTE["series"][:5], "#d9a400", PALETTE["series"][6])
    tints = {t: tint(colors[i % 7], 0.35 + 0.3 * (i // 7)) for i, t in enumerate(tensors)}
    ax = axes_for(ax)
    named = []
    for i, (name, row) in enumerate(bars.items()):
        named += _draw_variant(ax, i, name, row, tints)
    ax.set_yticks(range(len(bars)), list(bars))
    ax.set_ylim(len(bars) - 0.45, -0.55)
    ax.set_xlim(0, largest * 1.26)
    _label_bytes(ax, largest)
    _name_pieces(ax, named)
    handles = [_swatch(color, tensor) for tensor, color in tints.items()]
    handles.append(_swatch(PALETTE["paper"], "read"))
    handles.append(_swatch(PALETTE["paper"], "written", "////"))
    figure = figure_of(ax)
    columns = max(2, int(figure.get_figwidth() / 1.15))  # inches that a name takes
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False,
                  handlelength=1.4, columnspacing=1.2)  # fmt: skip
    return ax


class _Piece(NamedTuple):
    tensor: str
    bytes: float
    hatch: str
    kernel: int


def _pieces(kernels: Work | Sequence[Work]) -> list[_Piece]:
    pieces = []
    for i, job in enumerate(as_list(kernels, Work)):
        reads = {tensor: n * job.passes.get(tensor, 1) for tensor, n in job.reads.items()}
        pieces += [_Piece(tensor, single(tensor, n), "", i) for tensor, n in reads.items()]
        pieces += [_Piece(tensor, single(tensor, n), "////", i) for tensor, n in job.writes.items()]
    return pieces


def _draw_variant(
    ax: Axes, i: int, name: str, row: Sequence[_Piece], tints: Mapping[str, Any]
) -> list[tuple[int, float, float, str]]:
    # returns (row, start, end, tensor) of the parts to label
    named, end = [], 0.0
    for j, (tensor, n, hatch, kernel) in enumerate(row):
        color = tints.get(tensor, PALETTE["muted"])
        if j and row[j - 1].kernel != kernel:
            edge, gid = [i - 0.42, i + 0.42], f"kernel:{name}:{kernel}"
            ax.plot([end, end], edge, color=PALETTE["ink"], lw=1.6, gid=gid)
        look = {"facecolor": color, "hatch": hatch, "edgecolor": PALETTE["muted"], "lw": 0.6}
        ax.barh(i, n, left=end, height=BAR, gid=f"bytes:{name}:{tensor}", **look)
        if tensor in tints:
            named.append((i, end, end + n, tensor))
        end += n
    note(ax, si(end, "B"), (end, i), (5, 0), "total", va="center")
    return named


def _swatch(color: Any, label: str, hatch: str = "") -> Patch:
    """Return an entry of a legend."""
    return Patch(fc=color, label=label, hatch=hatch, ec=PALETTE["muted"], lw=0.6)


def _label_bytes(ax: Axes, largest: float) -> None:
    """Label the horizontal axis in the prefix that the largest value has."""
    prefix = si(largest, "").split(" ")[-1]
    ax.xaxis.set_major_formatter(FuncFormatter(lambda n, _: short_number(n / PREFIXES[prefix])))
    ax.xaxis.set_major_locator(MaxNLocator(5))
    ax.set_xlabel(f"traffic ({prefix}B)")
    grid_behind(ax, "x")
    ax.tick_params(axis="y", length=0)


def _name_pieces(ax: Axes, pieces: list[tuple[int, float, float, str]]) -> None:
    """Write (row, start, end, name) into bars with room, upright if they are too narrow."""
    back = {"boxstyle": "round,pad=0.15", "fc": PALETTE["paper"], "ec": "none", "alpha": 0.85}
    look: Any = {"ha": "center", "va": "center", "fontsize": 9, "bbox": back, "gid": "piece"}
    made = [ax.text((start + end) / 2, row, name, **look) for row, start, end, name in pieces]

    def fit_names(renderer: Any) -> None:
        fits = []
        for text, (_, start, end, _) in zip(made, pieces, strict=True):
            ends = ax.transData.transform([(start, 0), (end, BAR)])
            room = abs(ends[1] - ends[0]) - 2 * point_of(ax)
            text.set_visible(True)
            for angle in (0, 90):
                text.set_rotation(angle)
                fit = bool((size_of(text, renderer) < room).all())
                if fit:
                    break
            fits.append(fit)
        for text, fit in zip(made, fits, strict=True):
            text.set_visible(fit and sum(fits) > len(fits) / 2)

    AtDraw(ax, fit_names, -5)
