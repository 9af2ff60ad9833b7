"""Time in which the device does little: launches, last waves, the host, other devices."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from roofline_helpers.device.findings.causes import Case, Claim
from roofline_helpers.device.rows import BETWEEN, GAP, HOST, KERNEL, LOOP, TRANSFER, TimedRow
from roofline_helpers.xla.module import COLLECTIVES

_FLOOR = {"cpu": 5e-6, "gpu": 6e-6, "tpu": 3e-6}
"""Seconds of a launch below which a kernel is short: about twice the least that one takes."""

_MANY = 20
_IDLE = 0.05
"""Share of the call below which an idle device is not the host's fault."""


def short_kernels(case: Case) -> Iterator[Claim]:
    """Yield kernels that are shorter than it takes to launch them, where there are many."""
    floor = _FLOOR[case.platform]
    if not case.measured:
        return
    kernels = [row for row in case.rows if row.kind == KERNEL and row.launches]
    for row in kernels:
        if row.inside >= _MANY and row.busy / row.inside < floor and row.lost > 0.5 * row.seconds:
            evidence = f"{row.inside:,.0f} kernels inside a loop take {row.busy * 1e6:,.0f} µs"
            yield Claim("short-kernels", ((row, row.lost, 0.0),), evidence)
    short = [row for row in kernels if row.busy / row.launches < floor]
    many = sum(row.launches for row in short)
    if many < _MANY:
        return
    share = many / sum(row.launches for row in kernels)
    between = [r for r in case.rows if r.kind == LOOP or (r.kind == GAP and r.name == BETWEEN)]
    gaps = share * sum(row.seconds for row in between)
    parts = tuple((row, max(row.lost, 0.0), 0.0) for row in short)
    evidence = f"{many:,.0f} launches of less than {floor * 1e6:.0f} µs each"
    lines = [row.source for row in sorted(short, key=lambda r: -r.launches) if row.source]
    yield Claim("short-kernels", parts, evidence, more=gaps, source=lines[0] if lines else "")


_DETAIL = re.compile(r"(\w+):([\d.,]+)")


def tails(case: Case) -> Iterator[Claim]:
    """Yield kernels of a GPU whose last wave of blocks leaves most multiprocessors idle."""
    if not case.processors:
        return
    for row in case.rows:
        known = dict(_DETAIL.findall(row.details))
        if row.kind != KERNEL or "grid" not in known or not row.launches:
            continue
        blocks = math.prod(int(n) for n in known["grid"].split(",") if n)
        waves = blocks / (case.processors * _resident(known))
        full = math.ceil(waves)
        if 1 < full <= 8 and row.busy / row.launches > _FLOOR["gpu"]:
            lost = row.seconds * (1 - waves / full)
            seconds = min(lost, max(row.lost, 0.0))
            if seconds > 0.1 * row.seconds:
                evidence = (
                    f"{blocks} blocks are {waves:.2f} waves on {case.processors} multiprocessors"
                )
                yield Claim("tail", ((row, seconds, 0.0),), evidence)


def _resident(known: dict[str, str]) -> int:
    """Return how many blocks a multiprocessor holds at once, by the occupancy that CUPTI states."""
    threads = math.prod(int(n) for n in known.get("block", "1024").split(",") if n)
    occupancy = float(known.get("occ_pct", "0") or 0)
    return max(round(2048 * occupancy / 100 / max(threads, 1)), 1)


def host(case: Case) -> Iterator[Claim]:
    """Yield the time in which the device waits for the host.

    If all of a call is one program, another jit helps nothing: the call itself is what costs.
    """
    waiting = [row for row in case.rows if row.kind == HOST]
    seconds = sum(row.seconds for row in waiting) - case.compiling
    if not case.measured or seconds < max(_IDLE * case.wall, case.unsteady):
        return
    parts = [f"{row.seconds * 1e6:,.0f} µs {row.name}" for row in waiting if row.seconds > 0]
    cause = "dispatch" if _one_program(case) else "host"
    if cause == "dispatch" and next(fresh_results(case), None) is not None:
        return
    yield Claim(cause, (), "no kernel runs: " + ", ".join(parts), more=seconds)


def _one_program(case: Case) -> bool:
    """Return whether a call starts one program, once, and so nothing between two of them waits."""
    starts = [row.launches / case.counted(row).launches for row in case.kernels]
    return len({row.program for row in case.kernels}) == 1 and max(starts) < 1.5


_PAGED = 2**22
"""Bytes of results from which on a CPU's system maps new pages for each call."""


def fresh_results(case: Case) -> Iterator[Claim]:
    """Yield kernels of a CPU that fill fresh memory where an argument's could be taken over.

    The system maps and clears each page at its first write, and takes all of them back later.
    """
    if case.platform != "cpu" or not case.measured or not case.kernels or not _one_program(case):
        return
    (program,) = {row.program: case.program(row) for row in case.kernels}.values()
    results = program.replaceable
    size = sum(shape.bytes for shape in results.values())
    if size < _PAGED:
        return
    idle = sum(row.seconds for row in case.rows if row.kind == HOST)
    slow = [(row, max(row.lost, 0.0), 0.0) for row in case.kernels if row.name in results]
    if idle + sum(seconds for _, seconds, _ in slow) > 0.25 * case.wall:
        evidence = f"{size / 1e6:,.0f} MB of results, as large as arguments that aren't donated"
        yield Claim("fresh-results", tuple(slow), evidence, more=idle)


def transfers(case: Case) -> Iterator[Claim]:
    """Yield copies between host and device, and calls back into Python."""
    for row in case.rows:
        if row.kind == TRANSFER:
            evidence = f"{row.launches:,.0f} × {row.name} {row.details}".strip()
            yield Claim("transfer", ((row, row.seconds, 0.0),), evidence)
    for row in case.kernels:
        target = case.program(row).sites[row.name].instruction.target
        if "callback" in target:
            evidence = f"the program calls back into Python ({target})"
            yield Claim("transfer", ((row, row.seconds, row.bytes),), evidence)


def compiling(case: Case) -> Iterator[Claim]:
    """Yield the time in which every call compiles anew."""
    if case.compiling:
        evidence = f"{case.compiling * 1e3:,.1f} ms of each call are the compiler's"
        yield Claim("compiling", (), evidence, more=case.compiling)


def communication(case: Case) -> Iterator[Claim]:
    """Yield exchanges between devices that no kernel hides."""
    for row in case.kernels:
        if _exchanges(row):
            evidence = f"{', '.join(row.operations)} of {row.bytes / 1e6:,.1f} MB, by itself"
            yield Claim("communication", ((row, row.seconds, row.bytes),), evidence)


def _exchanges(row: TimedRow) -> bool:
    return any(op.removesuffix("-start") in COLLECTIVES for op in row.operations)
