"""An explanation as text and as a table."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from roofline.diagnosis.answer import SEEN, answer
from roofline.diagnosis.devices import DeviceTime
from roofline.diagnosis.rows import BETWEEN_TURNS, KERNEL, LOOP, REST, TimedRow, rest_of
from roofline.network.measured import exchange_beside
from roofline.terminal import Grid, Heading
from roofline.xla.causes import Finding
from roofline.xla.display import (
    FIRST,
    FURTHER,
    LONGEST,
    TO_CHANGE,
    cause_told,
    needed,
    numbered,
    why_needed,
)
from roofline.xla.display import cost as cost_of
from roofline.xla.kernel import NOWHERE, function_of
from roofline.xla.roofs import main_dtype
from roofline_helpers.common.checks import BadValue, UnknownName
from roofline_helpers.common.show import cell, many, si, significant
from roofline_helpers.measured import NoData
from roofline_helpers.measured.libraries import NEAR, seconds_like
from roofline_helpers.work import matmul

if TYPE_CHECKING:
    import pandas

    from roofline.diagnosis.explanation import Explanation

SHOWN = 12
"""Rows that the text lists; the others are one line."""


def title(why: Explanation) -> str:
    """Return what ran, and on what."""
    what = f"the profile {why.name}" if why.origin == "trace" else why.name
    several = f"{len(why.devices)} × " if len(why.devices) > 1 else ""
    return f"{what} on {several}{why.device}, {si(why.wall, 's')} a call"


def heading(why: Explanation) -> str:
    """Return the heading of the causes."""
    return "what the compiled program has in vain" if why.withheld else TO_CHANGE


def headline(why: Explanation) -> str:
    """Return the three times of a call: by the clock with its spread, to expect, and needed."""
    least = needed(why.needed, why.chip)
    beside = compiled(why) if why.expected is not None else ""
    told = clock(why), beside, f"needed {least}" if least else ""
    return ", ".join(filter(None, told))


def clock(why: Explanation) -> str:
    """Return the time of a call, and its spread."""
    text = f"{si(why.wall, 's')} a call"
    if len(why.runs) > 1:
        low, high = sorted(why.runs)[0], sorted(why.runs)[-1]
        text += f" ({si(low, 's')} to {si(high, 's')}, {len(why.runs)} runs"
        text += f" of {why.queue} calls)" if why.queue > 1 else ")"
    return text


def compiled(why: Explanation) -> str:
    """Return the time to expect of the compiled program, beside the clock's."""
    if why.roofless:
        left = "of the others" if why.expected and why.expected.seconds else ""
        bare = f"{si(why.roofless, 's')} are of kernels without a roof"
        return f"{bare}, {left} expected {why.expected}" if left else bare
    times = (
        significant(why.wall / why.expected.seconds) if why.expected and why.expected.seconds else 0
    )
    return f"{times} times the {why.expected} to expect of such kernels" if times else ""


def facts(why: Explanation) -> list[tuple[str, str]]:
    """Return what was measured or counted: label and text."""
    least = why_needed(why.needed, why.chip)
    if why.needed is None and why.hand:
        least = f"{si(why.hand, 's')}, counted by hand"
    lines = [] if why.origin == "trace" else [("needed", least)]
    if why.expected is not None:
        source = f": {why.expected.why}" if why.expected.why else ""
        bare = (
            f", without {si(why.roofless, 's')} of kernels that have no roof"
            if why.roofless
            else ""
        )
        normal = " to expect of such kernels" if why.expected.seconds else ""
        lines.append(("compiled", f"{why.expected}{normal}{bare}{source}"))
    lines.append(("clock", clock(why)))
    if why.traced and why.origin == "measured":
        rows = f"{si(why.covered, 's')} together, {_relative_to(why.covered, why.wall)} the call"
        traced, alone = statistics.median(why.traced), statistics.median(why.ungraphed or why.runs)
        text = f"{si(traced, 's')} a call, {_relative_to(traced, alone)} without it"
        lines += [("rows", rows), ("with the profiler", text)]
    if why.ungraphed:
        text = (
            f"{si(statistics.median(why.ungraphed), 's')} a call; the profile of kernels needs it"
        )
        lines.append(("without CUDA graphs", text))
    if why.graphs:
        middle = sorted(why.graphs)[len(why.graphs) // 2]
        lines.append(("with CUDA graphs", f"{si(middle, 's')} a call, as JAX runs it by default"))
    if why.withheld:
        launches = math.fsum(row.launches for row in why.kernels)
        programs = len({row.program for row in why.kernels if row.program})
        lines.append(("launches", f"{launches:,.0f} of {many(programs, 'program')} a call"))
    if why.compiling > 1e-3:  # an executable was compiled before
        lines.append(("compiled in", si(why.compiling, "s")))
    lines += _measured_elsewhere(why)
    if why.energy is not None:
        joules, watts = why.energy["joules"], why.energy["joules"] / why.energy["seconds"]
        text = f"{si(joules, 'J')} a call at {watts:.0f} W ({why.energy['idle']:.0f} W idle)"
        lines.append(("energy", text))
    if why.roofs.origin and (why.expected is None or why.roofs.origin != why.expected.why):
        lines.append(("ceilings", why.roofs.origin))
    if why.arguments:
        lines.append(("arguments", ", ".join(why.arguments)))
    return lines


def _measured_elsewhere(why: Explanation) -> list[tuple[str, str]]:
    """Return lines on measured kernels like the longest matmul, and the longest exchange."""
    launched = [row for row in why.kernels if row.launches]
    matmul = next((row for row in launched if row.kernel.matmul), None)
    exchange = next((row for row in launched if row.kernel.collective), None)
    lines: list[tuple[str, str | None]] = []
    if matmul is not None:
        sides, dtype = matmul.kernel.matmul, main_dtype(matmul.kernel.matrix_types)
        seconds = matmul.busy / matmul.launches
        lines.append(("kernels like it", matmuls_beside(sides, dtype, why.device, seconds)))
    if exchange is not None and exchange.kernel.collective is not None:
        sent, seconds = exchange.kernel.collective, exchange.seconds / exchange.launches
        size = max(sent.bytes_in, sent.bytes_out)
        line = exchange_beside(sent.kind, size, sent.group_size, why.device, seconds)
        lines.append(("exchanges like it", line))
    return [(label, line) for label, line in lines if line is not None]


def _relative_to(seconds: float, wall: float) -> str:
    share = 100 * (seconds / wall - 1)
    return f"{abs(share):.1f}% {'more' if share > 0 else 'less'} than"


def _share(why: Explanation, seconds: float) -> str | None:
    """Return the share of the call; None if it is withheld."""
    return None if why.withheld else f"{100 * seconds / why.wall:.1f}%"


def cells(why: Explanation, row: TimedRow) -> dict[str, Any]:
    """Return one row of the table."""
    kernel = row.kind == KERNEL
    return {
        "what": row.title,
        "line": row.source,
        "ms": row.seconds * 1e3,
        "share": _share(why, row.seconds),
        "lost ms": row.lost * 1e3 if kernel and row.reachable is not None else None,
        "roof ms": None if row.reachable is None else row.reachable * 1e3,
        "launches": round(row.launches, 2) if kernel else None,
        "GB/s": None if row.bandwidth is None else row.bandwidth / 1e9,
        "GFLOP/s": None if row.rate is None else row.rate / 1e9,
        "limit": row.limit,
        "kernel": _named(row) if kernel else "",
    }


def residue(why: Explanation) -> list[TimedRow]:
    """Return the rest of the call as a row: with it the rows add up to the measured time.

    It is negative if the profiled runs, which rows come from, took longer.
    """
    if why.origin != "measured":
        return []
    return [TimedRow(rest_of(why.unexplained), REST, why.unexplained)]


def _named(row: TimedRow) -> str:
    return f"{row.name} and {row.kernels - 1} like it" if row.kernels > 1 else row.name


def table(why: Explanation) -> pandas.DataFrame:
    """Return all rows as a table, longest first; the last row is the unexplained rest."""
    import pandas

    frame = pandas.DataFrame([cells(why, row) for row in (*why.groups, *residue(why))])
    return frame.set_index("what") if len(frame) else frame


MANY = 20
"""Rows from which on a table by function comes first."""

FUNCTIONS = 12
"""Functions that are told apart; more are named by fewer of their scopes."""


def functions(why: Explanation) -> list[dict[str, Any]]:
    """Return one row a function, the longest first, of a call that has many rows and functions."""
    listed = _functions(why) if len(why.groups) > MANY else []
    named = [row for row in listed if row["launches"] and row["function"] != NOWHERE]
    return listed if len(named) > 1 else []


def devices(why: Explanation) -> list[dict[str, Any]]:
    """Return one row a device, if there are several."""
    return [device_cells(device) for device in why.devices if len(why.devices) > 1]


def _functions(why: Explanation) -> list[dict[str, Any]]:
    """Return one row a function, the longest first: with all its layers and passes.

    A scope within a scope is a function of its own, unless there are too many.
    """
    named = [(_function(row), row) for row in why.rows]
    paths = [name.split(".") for name, row in named if row.kind == KERNEL]
    depth = max(map(len, paths), default=1)
    while depth > 1 and len({tuple(path[:depth]) for path in paths}) > FUNCTIONS:
        depth -= 1
    groups: dict[str, list[TimedRow]] = {}
    for name, row in named:
        short = ".".join(name.split(".")[:depth]) if row.kind == KERNEL else name
        groups.setdefault(short, []).append(row)
    listed = [_function_cells(why, name, rows) for name, rows in groups.items()]
    return sorted(listed, key=lambda cells: -cells["ms"])


def _function(row: TimedRow) -> str:
    if row.kind == LOOP:
        return BETWEEN_TURNS
    return function_of(row.kernel) if row.kind == KERNEL else row.name


def _function_cells(why: Explanation, name: str, rows: list[TimedRow]) -> dict[str, Any]:
    seconds = math.fsum(row.seconds for row in rows)
    roofed = [row for row in rows if row.kind == KERNEL and row.reachable is not None]
    back = math.fsum(row.seconds for row in rows if row.kernel.step != "forward")
    launches = math.fsum(row.launches for row in rows if row.kind == KERNEL)
    return {
        "function": name,
        "ms": seconds * 1e3,
        "share": _share(why, seconds),
        "roof ms": math.fsum(row.reachable or 0.0 for row in roofed) * 1e3 if roofed else None,
        "lost ms": math.fsum(row.lost for row in roofed) * 1e3 if roofed else None,
        "backward ms": back * 1e3 or None,
        "launches": round(launches, 2) or None,
        "causes": ", ".join(_causes(why, rows)) or None,
        "line": max(rows, key=lambda row: row.seconds).source,
    }


def _causes(why: Explanation, rows: Sequence[TimedRow]) -> Iterator[str]:
    """Yield the numbers of the named causes that some rows show."""
    names = {row.name for row in rows}
    for number, finding in numbered(why.findings)[0]:
        if names & {*finding.kernels}:
            yield number.rstrip(".")


def function_table(why: Explanation) -> pandas.DataFrame:
    """Return one row a function; the last row is the unexplained rest."""
    import pandas

    rest = [_function_cells(why, row.name, [row]) for row in residue(why)]
    frame = pandas.DataFrame([*_functions(why), *rest])
    return frame.set_index("function") if len(frame) else frame


def device_cells(device: DeviceTime) -> dict[str, Any]:
    """Return one device's row of the table of devices."""
    return {
        "device": device.device,
        "kernels ms": device.kernels * 1e3,
        "exchanges ms": device.moving * 1e3,
        "waiting ms": device.waiting * 1e3,
        "idle ms": device.idle * 1e3,
        "is last at": device.last,
    }


def device_table(why: Explanation) -> pandas.DataFrame:
    """Return one row a device: the parts of its time add up to the traced call."""
    import pandas

    columns = list(device_cells(DeviceTime("", 0, 0, 0, 0)))
    rows = [device_cells(device) for device in why.devices]
    return pandas.DataFrame(rows, columns=columns).set_index("device")


def caveats(why: Explanation) -> list[str]:
    """Return what limits these numbers."""
    if why.origin != "measured" or abs(why.unexplained) <= SEEN * why.wall:
        return [*why.notes]
    off = f"{abs(why.unexplained) / why.wall:.0%} {'less' if why.unexplained > 0 else 'more'}"
    return [f"rows, timed with the profiler, take {off} than the call without it", *why.notes]


def parts(why: Explanation) -> list[str | Grid]:
    """Return what is printed of an explanation: the answer in words, then the tables."""
    names = ["ms", "share", "launches", "roof ms", "GB/s", "GFLOP/s", "line"]
    more = why.groups[SHOWN:]
    rest = TimedRow(f"… and {len(more)} more", REST, sum(row.seconds for row in more))
    listed = (*why.groups[:SHOWN], *([rest] if more else []), *residue(why))
    rows = [
        [row["what"], *(cell(row[name]) for name in names)]
        for row in (cells(why, row) for row in listed)
    ]
    bars = [(bar.name, cell(1e3 * bar.seconds), "ms") for bar in why.waterfall]
    bars.append(("the call", cell(1e3 * why.wall), "ms"))
    causes, others = (
        [(n, cause_told(f, cost(why, f))) for n, f in some] for some in numbered(why.findings)
    )
    shown: list[str | Grid] = [title(why), "", " ".join(answer(why))]
    for name, grid in (
        (heading(why), Grid(["", ""], causes[:FIRST])),
        ("from the roof to the clock", Grid(["", "", ""], [] if why.withheld else bars)),
        ("what was measured", Grid(["", ""], facts(why))),
        ("caveats", Grid(["", ""], [("-", note) for note in caveats(why)])),
        ("by function", _grid(functions(why))),
        ("by device", _grid(devices(why))),
        ("by kernel", Grid(["", *names], rows)),
        (FURTHER, Grid(["", ""], causes[FIRST:])),
        (LONGEST, Grid(["", ""], others)),
    ):
        shown += [Heading(name), grid] if grid.rows else []
    return shown


def _grid(rows: list[dict[str, Any]]) -> Grid:
    """Return rows as they are listed: the first cell names the row."""
    lines = [[cell(value) for value in row.values()] for row in rows]
    return Grid(["", *list(rows[0])[1:]] if rows else [], lines)


def cost(why: Explanation, finding: Finding) -> str:
    """Return a cause's cost: its share of the call, and seconds only if a range was checked.

    An older record has no share, and not all kernels: then it is the estimated loss, as such.
    """
    if finding.named and not finding.share and finding.seconds:
        lost = finding.seconds / why.wall
        return f"an estimated {lost:.0%} of the call, not checked by a timed pair"
    told = cost_of(finding, checked=not why.withheld)
    return (
        told.replace("of the call", "of the time that its programs are expected to take")
        if why.withheld
        else told
    )


def matmuls_beside(
    sides: Sequence[int], dtype: str | None, chip: str, seconds: float
) -> str | None:
    """Return a line on matmuls like one of m × n × k; None where too few were measured."""
    m, n, k = sides
    try:
        near = seconds_like(matmul(m, n, k, dtype or "bf16"), chip)
    except (NoData, UnknownName, BadValue):
        return None
    shape = " × ".join(f"{side:,}" for side in sides)
    line = (
        f"{len(near)} measured matmuls like {shape} in {dtype} (each side within a factor of "
        f"{NEAR['matmul']:g}, a benchmark's grid): median {si(np.median(near), 's')}, "
        f"best {si(near[0], 's')}"
    )
    return (
        f"{line}; {np.mean(near >= seconds):.0%} are no faster than this one's {si(seconds, 's')}"
    )
