"""Idle time of the device: launches, last waves, the host, other devices."""

from __future__ import annotations

import math
import re

from roofline.diagnosis.findings.causes import FLOOR, Case, Cause, Claim, Claims, whole
from roofline.diagnosis.rows import BETWEEN, HOST, KERNEL, LOOP, TRANSFER, TimedRow
from roofline.xla.hlo import COLLECTIVES
from roofline.xla.traffic import host_transfer
from roofline_helpers.common.show import si

_MANY = 20
_IDLE = 0.05
"""Share of the call below which idle time is not attributed to the host."""

SHORT = Cause(
    "short-kernels",
    "many kernels are shorter than it takes to launch them",
    "fuse or batch them, do more in each iteration of a loop (unroll=), or use one operation on "
    "the whole array in its place",
    "notebooks/limitations",
)


def short_kernels(case: Case) -> Claims:
    """Yield kernels that are shorter than it takes to launch them, where there are many."""
    floor = FLOOR[case.platform]
    kernels = [row for row in case.rows if row.kind == KERNEL and row.launches]
    if not case.measured:  # what the launches take beyond the roof is the floor that is assumed
        kernels = [row for row in kernels if row.lost > 0.5 * row.seconds]
        kernels = [row for row in kernels if not (row.kernel.host_bytes or row.kernel.at_least)]
    for row in kernels:
        if row.inside >= _MANY and row.busy / row.inside < floor and row.lost > 0.5 * row.seconds:
            evidence = f"{row.inside:,.0f} kernels inside a loop take {row.busy * 1e6:,.0f} µs"
            yield Claim(SHORT, ((row, row.lost),), evidence)
    short = [row for row in kernels if row.busy / row.launches < floor]
    launches = sum(row.launches for row in short)
    if launches < _MANY:
        return
    share = launches / sum(row.launches for row in kernels)
    between = (row for row in case.rows if row.kind == LOOP or row.name == BETWEEN)
    gaps = share * sum(row.seconds for row in between)
    parts = tuple((row, max(row.lost, 0.0)) for row in short)
    evidence = f"{launches:,.0f} launches of less than {floor * 1e6:.0f} µs each"
    lines = [row.source for row in sorted(short, key=lambda r: -r.launches) if row.source]
    yield Claim(SHORT, parts, evidence, more=gaps, source=lines[0] if lines else "")


TAIL = Cause(
    "tail",
    "the last wave of a kernel leaves most of the GPU idle",
    "choose a block size, a batch or a split that fills whole waves",
    "notebooks/where-the-time-goes",
)
_DETAIL = re.compile(r"(\w+):([\d.,]+)")


def tails(case: Case) -> Claims:
    """Yield kernels of a GPU whose last wave of blocks leaves most multiprocessors idle."""
    for row in case.rows if case.processors else ():
        known = dict(_DETAIL.findall(row.details))
        if row.kind != KERNEL or "grid" not in known or not row.launches:
            continue
        blocks, threads = (
            math.prod(int(n) for n in known.get(name, "1024").split(",") if n)
            for name in ("grid", "block")
        )
        # as many blocks as a multiprocessor holds at once, by the occupancy that CUPTI states
        occupied = 2048 * float(known.get("occ_pct", 0)) / 100  # threads
        resident = max(round(occupied / max(threads, 1)), 1)
        waves = blocks / (case.processors * resident)
        full = math.ceil(waves)
        lost = min(row.seconds * (1 - waves / max(full, 1)), row.lost)
        long = row.busy / row.launches > FLOOR["gpu"] and lost > 0.1 * row.seconds
        if long and 1 < full <= 8:
            evidence = f"{blocks} blocks are {waves:.2f} waves on {case.processors} multiprocessors"
            yield Claim(TAIL, ((row, lost),), evidence)


WAITS = Cause(
    "host",
    "the device waits for the host",
    "put the whole step into one jit, queue several steps before reading a result",
    "notebooks/where-the-time-goes",
)
DISPATCH = Cause(
    "dispatch",
    "the device idles while the host starts and ends a call",
    "do more in one call (several steps in a jax.lax.scan), and queue several calls before "
    "reading a result",
    "notebooks/where-the-time-goes",
)


def host(case: Case) -> Claims:
    """Yield the time in which the device waits for the host.

    If the whole call is one program, another jit doesn't help: the cost is the call itself.
    """
    waiting = [row for row in case.rows if row.kind == HOST]
    seconds = sum(row.seconds for row in waiting) - case.compiling
    if not case.measured or seconds < max(_IDLE * case.wall, case.unsteady):
        return
    parts = [f"{row.seconds * 1e6:,.0f} µs {row.name}" for row in waiting if row.seconds > 0]
    starts = [row.launches / row.kernel.launches for row in case.kernels]
    once = len({row.program for row in case.kernels}) == 1 and max(starts) < 1.5
    evidence = "no kernel runs: " + ", ".join(parts)
    yield Claim(DISPATCH if once else WAITS, (), evidence, more=seconds)


MOVED = Cause(
    "transfer",
    "data moves between host and device at every call",
    "keep it on the device: put it there once, and read results back seldom",
    "notebooks/where-the-time-goes",
)


HANDED = Cause(
    "callback",
    "the program waits for the host in its middle",
    "compute it in JAX, on the device; print and save what the call returns, after it or seldom",
    "notebooks/where-the-time-goes",
)


def transfers(case: Case) -> Claims:
    """Yield copies between host and device, and what the program hands to the host's Python."""
    for row in case.rows:
        if row.kind == TRANSFER:
            yield whole(MOVED, row, f"{row.launches:,.0f} × {row.name} {row.details}".strip())
    by_line: dict[str, list[tuple[TimedRow, tuple[int, int]]]] = {}
    for row in case.kernels:
        sides = host_transfer(case.program(row).sites[row.name])
        if sides is not None:
            by_line.setdefault(row.source, []).append((row, sides))
    for line, found in by_line.items():
        to, back = (si(sum(s[n] * row.launches for row, s in found), "B") for n in (0, 1))
        evidence = f"{found[0][0].title}: {to} to it, {back} back"
        evidence += "" if case.measured else ", over a link whose rate isn't known, so without time"
        yield Claim(HANDED, tuple((row, row.seconds) for row, _ in found), evidence, source=line)


COMPILING = Cause(
    "compiling",
    "a program is compiled again at every call",
    "keep shapes, types and static arguments the same, and make the jitted function once",
    "notebooks/where-the-time-goes",
)


def compiling(case: Case) -> Claims:
    """Yield the time in which every call compiles anew."""
    if case.compiling:
        evidence = f"{case.compiling * 1e3:,.1f} ms of each call are the compiler's"
        evidence = ": ".join([evidence, "; ".join(case.anew)][: 1 + bool(case.anew)])
        yield Claim(COMPILING, (), evidence, more=case.compiling)


EXPOSED = Cause(
    "communication",
    "devices wait for an exchange that nothing hides",
    "shard so that less travels, or so that the exchange overlaps computation; of single "
    "numbers, whose time is latency, send several at once or in fewer turns (under jax.shard_map "
    "each device loops by itself)",
    "notebooks/collectives",
)


def communication(case: Case) -> Claims:
    """Yield exchanges between devices that no kernel hides."""
    for row in case.kernels:
        if any(op.removesuffix("-start") in COLLECTIVES for op in row.kernel.operations):
            sent = row.kernel.collective
            moved = row.bytes if sent is None else max(sent.bytes_in, sent.bytes_out) * row.launches
            often = f" in {row.launches:,.0f} launches" if row.launches > 1 else ""
            evidence = f"{', '.join(row.kernel.operations)} of {si(moved, 'B')}{often}, by itself"
            yield whole(EXPOSED, row, evidence)
