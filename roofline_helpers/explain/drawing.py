"""The pictures of a page, as SVG: they need neither Matplotlib nor the network."""

from __future__ import annotations

import html
import math
from typing import TYPE_CHECKING

from roofline_helpers.explain.rows import KERNEL, kin
from roofline_helpers.show import si

if TYPE_CHECKING:
    from roofline_helpers.explain.explanation import Explanation

_WIDTH = 860
_NARROW, _NAMES = 520, 232  # of the waterfall
_SLIM = 340  # of the waterfall on a phone
_LINE = 22
_BASE = ("counted by hand", "the compiled program")
_LABELLED = 6


def _text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">'
        f"{html.escape(words)}</text>"
    )


def _svg(height: float, label: str, inside: str, width: int = _WIDTH) -> str:
    kind = {_WIDTH: "", _NARROW: ' class="narrow"', _SLIM: ' class="slim"'}[width]
    return (
        f'<svg{kind} viewBox="0 0 {width} {height:.0f}" role="img" '
        f'aria-label="{html.escape(label, quote=True)}">{inside}</svg>'
    )


def _cut(words: str, most: int) -> str:
    return words if len(words) <= most else words[: most - 1] + "…"


def waterfall(why: Explanation, *, slim: bool = False) -> str:
    """Return the waterfall: a bar a step, from the least time to the clock's.

    In a slim one, for phones, names are above their bars.
    """
    bars = why.waterfall
    ends, sums = [0.0], 0.0
    for bar in bars:
        sums += bar.seconds
        ends.append(sums)
    low, high = min(ends), max(*ends, why.wall)
    width, left, line = (_SLIM, 0, 2 * _LINE - 6) if slim else (_NARROW, _NAMES, _LINE)
    room = width - left - (64 if slim else 90)
    parts = []

    def place(seconds: float) -> float:
        return left + room * (seconds - low) / ((high - low) or 1)

    def row(number: int, name: str, span: tuple[float, float], kind: str, seconds: float) -> None:
        y = line * number
        begin, end = sorted(span)
        meaning = bars[number].meaning if number < len(bars) else ""
        tip = f"<title>{html.escape(meaning)}</title>" if meaning else ""
        at = y + (17 if slim else 3)
        parts.append(
            f'<rect x="{begin:.1f}" y="{at}" width="{max(end - begin, 1.0):.1f}" '
            f'height="{_LINE - 6}" class="{kind}">{tip}</rect>'
        )
        x, anchor = (0, "start") if slim else (left - 8, "end")
        parts.append(
            _text(x, y + (12 if slim else 15), _cut(name, 44 if slim else 31), "name", anchor)
        )
        parts.append(_text(end + 5, at + 12, si(seconds, "s"), "value"))

    for number, bar in enumerate(bars):
        kind = "gain" if bar.seconds < 0 else "loss"
        kind = "ideal" if bar.name in _BASE else "rest" if number == len(bars) - 1 else kind
        row(number, bar.name, (place(ends[number]), place(ends[number + 1])), kind, bar.seconds)
    row(len(bars), "the call", (place(0), place(why.wall)), "call", why.wall)
    largest = max(bars, key=lambda bar: bar.seconds)
    label = f"Waterfall of {len(bars)} steps that add up to {si(why.wall, 's')}; the largest is "
    label += f"{largest.name}, {si(largest.seconds, 's')}"
    return _svg(line * (len(bars) + 1), label, "".join(parts), width)


def timeline(why: Explanation) -> str:
    """Return the timeline of one call: a line a stream or thread."""
    length = max(start + took for start, took, _, _ in why.timeline)
    left, right = 60, _WIDTH - 20
    order = [kin(row) for row in why.kernels[:_LABELLED]]
    parts = []
    for start, took, line, number in why.timeline:
        row = why.rows[number]
        if row.kind != KERNEL:
            continue
        x = left + (right - left) * start / length
        width = max((right - left) * took / length, 0.3)
        kind = f"k{order.index(kin(row))}" if kin(row) in order else "other"
        tip = html.escape(f"{row.what}: {si(took, 's')} from {si(start, 's')}")
        parts.append(
            f'<rect x="{x:.1f}" y="{line * _LINE + 2}" width="{width:.1f}" height="{_LINE - 4}" '
            f'class="{kind}"><title>{tip}</title></rect>'
        )
    for line in range(len(why.lines)):
        parts.append(_text(left - 8, line * _LINE + 15, str(line + 1), "name", "end"))
    y = len(why.lines) * _LINE
    for share in (0, 0.25, 0.5, 0.75, 1):
        tick = si(share * length, "s") if share else "0"
        anchor = "end" if share == 1 else "middle"
        parts.append(_text(left + (right - left) * share, y + 16, tick, "value", anchor))
    for number, row in enumerate(why.kernels[:_LABELLED]):
        x, below = 60 + 400 * (number % 2), y + 40 + 20 * (number // 2)
        parts.append(f'<rect x="{x}" y="{below - 11}" width="12" height="12" class="k{number}"/>')
        parts.append(_text(x + 18, below, _cut(row.what, 52)))
    rows = math.ceil(min(len(why.kernels), _LABELLED) / 2)
    label = f"Timeline of one call on {len(why.lines)} lines, {si(length, 's')} long"
    return _svg(y + 44 + 20 * rows, label, "".join(parts))


def roofline(why: Explanation) -> str:
    """Return the kernels where they were measured, sized by their time; empty without ceilings."""
    figures = why.roofs.reached or why.roofs.published
    drawn = [row for row in why.kernels if row.flops and row.bytes and row.busy]
    if "hbm" not in figures or not drawn:
        return ""
    roof = why.roofline()
    points = [((row.flops or 0) / row.bytes, row.rate or 0.0) for row in drawn]
    xs = [math.log10(x) for x, _ in points] + [math.log10(roof.ridge)]
    ys = [math.log10(y) for _, y in points] + [math.log10(roof.peak)]
    low, high = min(xs) - 0.5, max(xs) + 0.7
    bottom, top = min(ys) - 0.4, max(ys) + 0.4
    height, left, right = 380, 70, _WIDTH - 20

    def at(intensity: float, rate: float) -> tuple[float, float]:
        x = left + (right - left) * (math.log10(intensity) - low) / (high - low)
        return x, 20 + (height - 60) * (top - math.log10(rate)) / (top - bottom)

    start = max(10**low, 10**bottom / roof.bandwidth)
    corners = [start, roof.ridge, 10**high]
    path = " ".join(
        "{:.1f},{:.1f}".format(*at(x, min(roof.peak, roof.bandwidth * x))) for x in corners
    )
    parts = [f'<polyline points="{path}" class="roof"/>']
    peak = at(10**high, roof.peak)
    parts.append(_text(peak[0], peak[1] - 6, si(roof.peak, "FLOP/s"), "value", "end"))
    for row, (x, y) in zip(drawn, points, strict=True):
        cx, cy = at(x, y)
        radius = 3 + 22 * math.sqrt(row.seconds / why.wall)
        tip = f"{row.what}: {si(y, 'FLOP/s')}, {si(row.seconds, 's')}"
        parts.append(
            f'<circle cx="{cx:.1f}" cy="{cy:.1f}" r="{radius:.1f}">'
            f"<title>{html.escape(tip)}</title></circle>"
        )
    named: list[tuple[float, float]] = []
    for row, (x, y) in list(zip(drawn, points, strict=True))[:_LABELLED]:
        cx, cy = at(x, y)
        if any(abs(cy - other) < 16 and abs(cx - left) < 260 for left, other in named):
            continue
        named.append((cx, cy))
        anchor = "end" if cx > _WIDTH / 2 else "start"
        parts.append(
            _text(cx + (-8 if anchor == "end" else 8), cy + 14, _cut(row.what, 40), "", anchor)
        )
    for power in range(math.ceil(low), math.floor(high) + 1):
        parts.append(_text(at(10**power, 1)[0], height - 22, f"{10**power:g}", "value", "middle"))
    for power in range(math.ceil(bottom), math.floor(top) + 1):
        parts.append(_text(left - 8, at(1, 10**power)[1] + 4, si(10**power, ""), "value", "end"))
    parts.append(_text((left + right) / 2, height - 4, "FLOP/byte", "value", "middle"))
    label = f"{len(drawn)} kernels where they were measured, under a peak of "
    label += si(roof.peak, "FLOP/s")
    return _svg(height, label, "".join(parts))
