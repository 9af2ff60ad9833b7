"""Exchanges between devices that wait for one of them, or move more than is used."""

from __future__ import annotations

from collections.abc import Sequence

from roofline.diagnosis.findings.causes import Case, Claim, Claims, whole
from roofline.diagnosis.rows import GAP, HOST, KERNEL, WAIT, TimedRow
from roofline.diagnosis.trace import WAITS_FOR
from roofline_helpers.common.show import si


def skew(case: Case) -> Claims:
    """Yield the time in which exchanges wait for the device that arrives last, and why it does."""
    for row in case.rows:
        if row.kind == WAIT:
            number = row.name.removeprefix(WAITS_FOR)
            reason, source = _late(case.by_device.get(number, ()), case.rows)
            many = "" if row.launches < 1.5 else f" at {row.launches:,.0f} exchanges, in all"
            evidence = f"device {number} arrives last{many} by {si(row.seconds, 's')}"
            yield whole("skew", row, f"{evidence}: {reason}", source)
    waited = sum(row.seconds for row in case.rows if row.kind == WAIT)
    if waited < _LEAST * case.wall and len(case.by_device) > 1:
        yield from _uneven(case)


_LEAST = 0.05
"""Share of the call below which uneven work, or waiting, isn't looked into."""


def _uneven(case: Case) -> Claims:
    """Yield what the busiest device has more to do than the mean, if nothing shows who waits."""
    busy = {number: _total(rows, KERNEL) for number, rows in case.by_device.items()}
    names = {n: {row.name for row in rows} for n, rows in case.by_device.items()}
    slowest, fastest = (choose(busy, key=lambda number: busy[number]) for choose in (max, min))
    more = busy[slowest] - sum(busy.values()) / len(busy)
    alike = min(len(ran & names[slowest]) / len(names[slowest]) for ran in names.values())
    if more > _LEAST * case.wall and alike > 0.5:  # one program runs on all
        rows = case.by_device
        reason, source = _late(rows[slowest], rows[fastest], f"on device {fastest}")
        evidence = f"device {slowest} is busy longest, {si(more, 's')} more than the mean"
        yield Claim("skew", (), f"{evidence}: {reason}", more=more, source=source)


def _total(rows: Sequence[TimedRow], *kinds: str) -> float:
    return sum(row.seconds for row in rows if row.kind in kinds and not row.exchanges)


def _late(
    slow: Sequence[TimedRow], other: Sequence[TimedRow], where: str = "here"
) -> tuple[str, str]:
    """Return why a device is later than another, and the line of code, from the rows of both."""
    if not slow:
        return "its kernels aren't in this trace", ""
    known = {(row.program, row.name): row for row in other if row.kind == KERNEL}
    busy, other_busy = _total(slow, KERNEL), _total(other, KERNEL)
    more, idle = busy - other_busy, _total(slow, GAP, HOST) - _total(other, GAP, HOST)
    if idle > more:
        return f"it idles {si(idle, 's')} longer, so its host launches late", ""
    text = f"its kernels take {si(busy, 's')}, {where} {si(other_busy, 's')}"
    rows = [row for row in slow if row.kind == KERNEL and not row.exchanges]
    none = TimedRow("", launches=0.0)
    pairs = [(row, known.get((row.program, row.name), none)) for row in rows]
    row, like = max(pairs, key=lambda pair: pair[0].seconds - pair[1].seconds)
    if row.launches > 1.05 * like.launches:
        text += f"; {row.title} runs {row.launches:,.3g} times there, {like.launches:,.3g} {where}"
    else:
        launch, other_launch = (si(r.busy / max(r.launches, 1), "s") for r in (row, like))
        text += f"; {row.title} takes {launch} there and {other_launch} {where}, launched as often"
    return text, row.source
