"""Idle time of the device: launches, last waves, the host, other devices."""

from __future__ import annotations

from roofline.diagnosis.findings.causes import Case, Claim, Claims, whole
from roofline.diagnosis.rows import HOST, TRANSFER, TimedRow
from roofline.xla.traffic import host_transfer
from roofline_helpers.common.show import si

_IDLE = 0.05
"""Share of the call below which idle time is not attributed to the host."""


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
    yield Claim("dispatch" if once else "host", (), evidence, more=seconds)


def transfers(case: Case) -> Claims:
    """Yield copies between host and device, and what the program hands to the host's Python."""
    for row in case.rows:
        if row.kind == TRANSFER:
            yield whole("transfer", row, f"{row.launches:,.0f} × {row.name} {row.details}".strip())
    by_line: dict[str, list[tuple[TimedRow, tuple[int, int]]]] = {}
    for row in case.kernels:
        sides = host_transfer(case.program(row).sites[row.name])
        if sides is not None:
            by_line.setdefault(row.source, []).append((row, sides))
    for line, found in by_line.items():
        to, back = (si(sum(s[n] * row.launches for row, s in found), "B") for n in (0, 1))
        evidence = f"{found[0][0].title}: {to} to it, {back} back"
        evidence += "" if case.measured else ", over a link whose rate isn't known, so without time"
        yield Claim(
            "callback", tuple((row, row.seconds) for row, _ in found), evidence, source=line
        )


def compiling(case: Case) -> Claims:
    """Yield the time in which every call compiles anew."""
    if case.compiling:
        evidence = f"{case.compiling * 1e3:,.1f} ms of each call are the compiler's"
        evidence = ": ".join([evidence, "; ".join(case.anew)][: 1 + bool(case.anew)])
        yield Claim("compiling", (), evidence, more=case.compiling)
