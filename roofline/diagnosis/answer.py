"""The answer in words: what a call's time goes to, and what bounds it, as far as is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roofline.diagnosis.rows import GAP, HOST, KERNEL, LOOP, TRANSFER, WAIT, TimedRow
from roofline.xla.display import CHANGES
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
    "above": "is bound by no ceiling of the chip",
    "idle": "mostly waits",
    "wait": "waits for another device",
    "transfer": "waits for copies",
    "rest": "isn't explained",
}

_NEXT = CHANGES | {
    "above": "Faster memory or more FLOP/s change nothing about that; how these kernels run does.",
    "idle": "Faster kernels change nothing about that; fewer launches, or a quicker host, may.",
    "wait": "Faster kernels here change nothing about that; a faster slowest device does.",
    "transfer": "Faster kernels change nothing about that; data that stay on the device do.",
    "no roof": "Give ceilings= for this device, or a trace that carries its compiled program.",
    "rest": "Explain it again for longer (seconds=), when nothing else runs.",
}


def open_ended(why: Explanation) -> bool:
    """Return whether nothing ran, and some kernel's time can't be told."""
    kernels = [row.kernel for row in why.rows]
    return why.origin == "modelled" and any(k.untimed or k.loop or k.host_bytes for k in kernels)


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
    measured, bandwidth = why.origin != "modelled", why.roofs.published.get("hbm")
    if row.flops is None and not (measured and row.reachable >= CLOSE * row.seconds):
        return "undeclared"
    if measured and row.least is not None and row.least > row.seconds:
        return "overlapping" if row.busy > OVERLAPPED * row.seconds else "cached"
    if measured and row.busy > OVERLAPPED * row.seconds:
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
    """Return what a colleague would say first: what bounds the call with its reason, and so what.

    No more is claimed than what survives reached and published ceilings, floors and tensors that
    stay on the chip; otherwise the sentence says what it depends on.
    """
    if why.withheld:
        return [f"No diagnosis: {why.withheld}."]
    if not why.rows and why.origin == "modelled":
        return ["Nothing ran, and this program runs no kernel, so nothing bounds it."]
    if not why.rows:
        return ["No kernel of this call is known, so neither is what bounds it."]
    if open_ended(why):
        reason = f": {why.findings[0].evidence}" if why.findings else ""
        return [f"Nothing ran, and how long this call takes can't be told{reason}."]
    parts = parts_of(why)
    whole = sum(parts.values()) or 1.0
    (name, seconds), *_ = parts.items()
    if seconds >= MOST * whole:
        verdict = f"{{}} {_BOUND[name]}" if name in _BOUND else "what bounds {} can't be told"
        told = f"{seconds / whole:.0%} of it ({si(seconds, 's')}) goes to {PARTS[name]}"
        said = [f"{verdict}: {told}.", _NEXT.get(name, "Time the longest of them alone.")]
    else:
        seen = [(part, took / whole) for part, took in parts.items() if took >= SEEN * whole]
        shares = ", ".join(f"{share:.0%} to {PARTS[part]}" for part, share in seen[:3])
        said = [f"{{}} has no one bound: of its time go {shares}."]
        said.append("Faster memory, or more FLOP/s, would each shorten one part only.")
    lead = "nothing ran; by its program, " if why.origin == "modelled" else ""
    said[0] = f"{lead}{said[0].format('this call')}"
    said[0] = said[0][0].upper() + said[0][1:]
    if why.platform == "cpu":
        said = [text.replace("the memory", "memory or a cache") for text in said]
    if why.hand and why.origin == "measured":
        share = f"{why.hand / why.wall:.0%} of the call"
        said.append(f"Counted by hand, its work needs {si(why.hand, 's')}, {share}.")
    losses = [finding.seconds for finding in why.findings]
    if name != "rest" and why.unexplained > max([*losses, SEEN * why.wall]):
        said.append(f"The largest loss, {si(why.unexplained, 's')}, is in no row.")
    return said
