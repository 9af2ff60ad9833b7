"""The answer in words: what to do, the call's times, and what it goes to, as far as is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roofline.diagnosis.rows import GAP, HOST, KERNEL, LOOP, TRANSFER, WAIT, TimedRow
from roofline.xla.display import CHANGES, first_change, needed, no_cause, sentence
from roofline.xla.minimum import needed_seconds
from roofline_helpers.common.show import si

if TYPE_CHECKING:
    from roofline.diagnosis.explanation import Explanation

MOST = 0.5
"""Share of a call from which on one part of it is the answer."""

SEEN = 0.05
"""Share of a call from which on a part is told among others."""

CLOSE = 0.8
"""Share of its roof from which on a kernel of unknown FLOPs is bound by its bytes."""

OVERLAPPED = 1.2
"""A kernel that runs so many times as long as its share of the call runs beside others."""

_LIMITS = {"hbm": "memory", "matrix": "compute", "vector": "vector"}
_WAITS = {GAP: "idle", HOST: "idle", LOOP: "idle", WAIT: "wait", TRANSFER: "transfer"}

PARTS = {
    "memory": "moving bytes at the rate that the memory reaches",
    "compute": "FLOPs at the rate that good kernels reach",
    "vector": "operations at the rate that the vector unit reaches",
    "network": "exchanges between devices that no kernel hides",
    "above": "what kernels take beyond the time of their bytes and FLOPs",
    "idle": "time in which no kernel runs",
    "wait": "waiting for the slowest device",
    "transfer": "copies between the host and the device",
    "rest": "nothing that the profiler shows",
    "no roof": "kernels that have no roof here",
    "undeclared": "kernels that state no FLOPs, and whose bytes don't account for their time",
    "overlapping": "kernels that overlap, so that none has a time of its own",
    "cached": "kernels that beat the published roof, so that some bytes stayed on the chip",
    "ceilings": "kernels that published ceilings limit in one way, and reached ones in another",
    "data": "kernels whose bytes data choose, or whose peak nobody publishes",
}
"""What the parts of a call's time go to; the last six say what a bound depends on."""

_BOUND = {
    "memory": "is bound by memory",
    "compute": "is bound by arithmetic",
    "vector": "is bound by elementwise work",
    "network": "is bound by the network",
    "idle": "mostly waits",
    "wait": "waits for another device",
    "transfer": "waits for copies",
    "rest": "isn't explained",
}

_NEXT = CHANGES | {
    "idle": "Faster kernels change nothing about that; fewer launches, or a quicker host, may.",
    "wait": "Faster kernels here change nothing about that; a faster slowest device does.",
    "transfer": "Faster kernels change nothing about that; data that stay on the device do.",
    "no roof": "Give ceilings= for this device, or a trace that carries its compiled program.",
    "rest": "Explain it again for longer (seconds=), when nothing else runs.",
}


def parts_of(why: Explanation) -> dict[str, float]:
    """Return the seconds of a call by what they go to (`PARTS`), the most first.

    A kernel with a known bound is split in two: what its bytes or FLOPs take by the reached roof,
    and what it takes "above" that. The sum is the call, or all rows where the profiler made it
    longer.
    """
    sums = dict.fromkeys(PARTS, 0.0)
    sums["rest"] = max(why.unexplained, 0.0)
    for row in why.rows:
        name, needed = _part(why, row), row.seconds
        if name in _LIMITS.values():
            needed = min(row.reachable or 0.0, row.seconds)
            sums["above"] += row.seconds - needed
        sums[name] += needed
    return dict(sorted(sums.items(), key=lambda part: -part[1]))


def _part(why: Explanation, row: TimedRow) -> str:
    """Return what a row's time goes to, or why nobody can tell."""
    if row.kind != KERNEL:
        return _WAITS[row.kind]
    if row.exchanges:
        return "network"
    if row.reachable is None:
        return "no roof"
    bandwidth = why.roofs.published.get("hbm")
    if row.flops is None and row.reachable < CLOSE * row.seconds:
        return "undeclared"
    overlapping = row.busy > OVERLAPPED * row.seconds
    if row.least is not None and row.least > row.seconds:
        return "overlapping" if overlapping else "cached"
    if overlapping:
        return "overlapping"
    if not row.reachable:
        return "above"
    if row.limit not in _LIMITS:
        return "data"
    if bandwidth and row.least:  # the verdict has to be the same by published ceilings
        by_bytes = row.bytes / bandwidth >= 0.98 * row.least
        if by_bytes != (row.limit == "hbm"):
            return "ceilings"
    return _LIMITS[row.limit]


def answer(why: Explanation) -> list[str]:
    """Return what a colleague would say first, a sentence each: what to do, then the times.

    No more is claimed of a bound than what survives reached and published ceilings, floors and
    tensors that stay on the chip; otherwise the sentence says what it depends on.
    """
    floor = needed_seconds(why.needed, why.chip) or 0.0
    of = "the expected time" if why.withheld else "the time"
    changed = first_change(why.findings, why.wall, floor, of)
    if why.withheld:
        none = no_cause(why.findings, " in the compiled program")
        return [*(changed or [none]), times(why), f"{sentence(why.withheld)}"]
    if not why.rows:
        return [times(why), "No kernel of this call is known, so neither is what bounds it."]
    verdict, follows = _verdict(why)
    if changed:
        said = [*changed, times(why), verdict]
    else:
        said = [no_cause(why.findings), verdict, follows, times(why)]
    if why.hand and why.origin == "measured":
        share = f"{why.hand / why.wall:.0%} of the call"
        said.append(f"Counted by hand, its work needs {si(why.hand, 's')}, {share}.")
    losses = [finding.seconds for finding in why.findings]
    if why.unexplained > max([*losses, SEEN * why.wall]):
        said.append(f"The largest loss, {si(why.unexplained, 's')}, is in no row.")
    return said


def times(why: Explanation) -> str:
    """Return the call's time by the clock, beside what to expect of it and what it needs."""
    said = f"The call takes {si(why.wall, 's')} by the clock"
    if why.expected is not None and not why.roofless:
        said += f"; as compiled it is expected to take {why.expected}"
    least = needed(why.needed, why.chip)
    said += f", and its result needs {least}" if least else ""
    return f"{said}."


def _verdict(why: Explanation) -> tuple[str, str]:
    """Return what a call's time goes to, and what follows from that."""
    parts = parts_of(why)
    whole = sum(parts.values()) or 1.0
    (name, seconds), *_ = parts.items()
    share = f"{seconds / whole:.0%} of it ({si(seconds, 's')}) goes to {PARTS[name]}"
    if seconds < MOST * whole:
        seen = [(part, took / whole) for part, took in parts.items() if took >= SEEN * whole]
        shares = ", ".join(f"{share:.0%} to {PARTS[part]}" for part, share in seen[:3])
        said = f"This call has no one bound: of its time go {shares}."
        follows = "Faster memory, or more FLOP/s, would each shorten one part only."
    elif name == "above":
        slowest = max(why.kernels, key=lambda row: row.lost if row.reachable is not None else 0.0)
        where = f" ({slowest.source})" if slowest.source else ""
        said = f"Its kernels don't reach their roofs: {share}."
        follows = f"Look at {slowest.title}{where} first: that is {si(slowest.lost, 's')} of it."
    else:
        bound = f"This call {_BOUND[name]}" if name in _BOUND else "What bounds it can't be told"
        said = f"{bound}: {share}."
        follows = _NEXT.get(name, "Time the longest of them alone.")
    if why.platform == "cpu":
        said = said.replace("the memory", "memory or a cache")
    return said, follows
