"""A report for people: as text, as HTML, as a table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeAlias

from roofline.terminal import Grid, Heading
from roofline.xla.expected import expected_of
from roofline.xla.kernel import CompiledKernel, cycle_seconds_of, line_of, longest_of, seconds_of
from roofline.xla.minimum import needed_seconds
from roofline.xla.page import page
from roofline.xla.targets import assumed_vector_peak
from roofline_helpers.common.show import cell, many, si, significant
from roofline_helpers.roofline import bound_of

if TYPE_CHECKING:
    import pandas

    from roofline.xla.causes import Finding
    from roofline.xla.compiler import MemoryStats
    from roofline.xla.kernel import TimedCollective
    from roofline.xla.minimum import Needed
    from roofline.xla.report import Report
    from roofline_helpers.chips import Chip
    from roofline_helpers.measured.kernels import Expected

SHOWN = 12
"""The most kernels that the text of a report lists."""

LONG, PAGE = 20, 24
"""Kernels of a program from which on its groups are listed too, and how many of these."""


CHANGES = {
    "memory": "A faster matrix unit changes nothing about that; fewer bytes do.",
    "compute": "Faster memory changes nothing about that; fewer FLOPs do, or a narrower type where "
    "this chip is faster in it.",
    "vector": "Neither fewer bytes nor a faster matrix unit changes that; less work per element "
    "does.",
    "network": "Faster kernels change nothing about that; fewer exchanges between devices do, or "
    "smaller ones, or kernels that run meanwhile.",
    "latency": "Faster memory or more FLOP/s change nothing about that; fewer launches and "
    "iterations do.",
}
"""What a bound means for a change."""

# --- the pieces -----------------------------------------------------------------------------------


def title(report: Report) -> str:
    """Return what was compiled, and for what."""
    many = f", one of {report.devices} devices" if report.devices > 1 else ""
    return f"{report.name}, compiled for {_where(report)}{many}"


def _where(report: Report) -> str:
    return report.chip.name if report.chip is not None else report.target


def headline(report: Report) -> str:
    """Return a report in a line: its times, FLOPs, bytes, kernels."""
    parts = []
    if report.expected is not None:
        parts = [f"expected {report.expected}"]
        least = needed(report.needed, report.chip)
        parts += [f"needed {least}"] if least else []
    parts.append(f"{_flops(report)}, {_range(report.hbm_bytes, report.most_bytes, 'B')} of HBM")
    if report.host_bytes:
        parts.append(f"{si(report.host_bytes, 'B')} to and from the host")
    if report.bound and not _beyond(report):
        parts.append(f"bound by {report.bound}")
    parts.append(many(len(report.kernels), "kernel"))
    return f"{report.name} for {report.target}: {', '.join(parts)}"


def compiled_by(report: Report) -> str:
    """Return the versions of JAX and of the compiler."""
    return f"JAX {report.jax_version}, {report.compiler}"


# --- the three numbers ----------------------------------------------------------------------------


def needed(work: Needed | None, chip: Chip | None) -> str:
    """Return the least time that a result needs; empty where it isn't known."""
    seconds = needed_seconds(work, chip)
    return "" if seconds is None else si(seconds, "s")


def why_needed(work: Needed | None, chip: Chip | None) -> str:
    """Return the least time that a result needs with what it counts, or why it isn't known."""
    if work is None:
        return "not known: only a function that is compiled here says what its result needs"
    amount = f"{si(work.bytes, 'B')} that cross memory once, {si(work.flops, 'FLOP')}"
    if work.refused:
        return f"not known: {work.refused}"
    if chip is None:
        return f"{amount}; no time, as the device is not in the chip table"
    by = {"hbm": "its memory", "matrix": "its matrix unit", "vector": "its vector unit"}
    unit = by[work.limit(chip)]
    return f"{si(work.seconds(chip) or 0.0, 's')} at least: {amount}, at the peak of {unit}"


def _beyond(report: Report) -> bool:
    """Return whether a program is expected to take much longer than its roof."""
    return known(report.expected) > BEYOND * (report.time_at_roof or 0.0)


def known(expected: Expected | None) -> float:
    """Return the seconds to expect; those that it takes at least where no more is known."""
    return 0.0 if expected is None else expected.known


BEYOND = 1.5
"""Expected time over a bound from which on the bound says nothing of it."""


# --- the answer -----------------------------------------------------------------------------------

LEADS = 0.05
"""Share of the time from which on a cause is what to change first."""


def _is_cause(found: Finding) -> bool:
    """Return whether a finding says what to change: a cause, or what no time is known of."""
    return found.named or not (found.seconds or found.share)


def first_change(
    findings: Sequence[Finding], whole: float, least: float, of: str = "the time"
) -> list[str]:
    """Return what to change first: where and why, and how. Nothing if no cause explains much.

    The causes are those of `whole` seconds, `of` in words; what the result needs, `least`, is left
    in any case.
    """
    # What has no time that is known comes first; then what explains a loss
    first = next(filter(_is_cause, findings), None)
    lost = max(first.share, first.seconds / whole) if first is not None and whole else 0.0
    if first is None or (first.seconds and lost < LEADS):
        return []
    where = f"In {first.source}, change" if first.source else "Change"
    share = "all" if first.share >= 0.995 else f"{first.share:.0%}"
    cost = f", in kernels that take {share} of {of}" if first.kernels and first.share else ""
    if not first.known and 0 < first.seconds < 0.5 * first.share * whole:  # a small part of theirs
        cost = f", which costs {first.seconds / whole:.0%} of {of}"
    said = [f"{where} this first: {first.title}{cost}."]
    if first.kind and first.known:
        shape = "[" in first.evidence.split(" ")[0]
        said.append(f"There, {first.evidence}." if shape else sentence(first.evidence))
    rest, remedy = max(whole - first.seconds, least, 0.0), sentence(first.advice)
    if first.known and whole - rest >= LEADS * whole:  # else no gain is known
        remedy += f" Without it {si(rest, 's')} are left of {si(whole, 's')}."
    return [*said, remedy]


def no_cause(findings: Sequence[Finding], where: str = "") -> str:
    """Return what is said of findings of which none is to change first."""
    if any(map(_is_cause, findings)):
        return "No cause that was found explains much of the time."
    return f"No cause of lost time found{where}."


def sentence(text: str) -> str:
    """Return words as a sentence; code at their beginning stays as it is."""
    code = any(sign in text.split(" ")[0] for sign in "._(")
    return f"Use {text.rstrip('.')}." if code else f"{text[:1].upper()}{text[1:].rstrip('.')}."


def answer(report: Report) -> list[str]:
    """Return what a colleague would say first, a sentence each: what to do, then the times.

    A bound is named only if it survives assumed peaks, bytes that data choose, and floors.
    """
    if report.chip is None:
        return [f"No time: {report.target} is not in the chip table, so there is work alone."]
    times = f"The compiled program is expected to take {report.expected}"
    if report.expected is not None and report.expected.seconds is None:
        low, why = si(report.expected.low, "s"), report.expected.why
        times = f"The compiled program takes {low} at least, and nobody knows how much more: {why}"
    least = needed(report.needed, report.chip)
    times += f". Its result needs {least}." if least else "."
    floor = needed_seconds(report.needed, report.chip) or 0.0
    told = report.expected is None or report.expected.seconds is not None
    of = "the expected time" if told else "the time that is known"
    changed = first_change(report.findings or (), known(report.expected), floor, of)
    if changed:
        return [*changed, times]
    none = [] if report.findings is None else [no_cause(report.findings)]
    # launches that take a small part of the time are no answer either
    waits = "latency" in report.bounds
    waits &= BEYOND * (report.time_with_floor or 0.0) >= known(report.expected)
    slow = _beyond(report) and report.bounds and not waits
    return [*none, *(_slowest(report) if slow else _bound(report)), times]


def _slowest(report: Report) -> list[str]:
    """Return which kernel of a program that its roof doesn't explain to look at first."""
    pairs = zip(report.kernels, report.likely, strict=True)
    kernel, likely = max(pairs, key=lambda pair: pair[1].known - (pair[0].roof_seconds or 0.0))
    source = f" ({kernel.work.source})" if kernel.work.source else ""
    roof = si(kernel.roof_seconds or 0.0, "s")
    often = f", launched {kernel.launches:,} times" if kernel.launches > 1 else ""
    return [
        f"Look first at {kernel.work.role or kernel.name}{source}{often}: "
        f"{likely} are expected of it, though its bytes and FLOPs take {roof} by "
        "published peaks."
    ]


def _bound(report: Report) -> list[str]:
    """Return what bounds a program by its roof, and what follows from it."""
    if len(report.bounds) > 1:
        either = " or ".join(report.bounds)
        follows = [CHANGES["latency"]] if "latency" in report.bounds and _beyond(report) else []
        said = f"What bounds this program depends, {either}, for {_why_bound_depends(report)}."
        return [said, *follows]
    if not any(kernel.busiest.launches for kernel in report.kernels):
        return ["This program runs no kernel, so nothing bounds it."]
    if report.bound is None:
        host = f"{si(report.host_bytes, 'B')} cross the link to the host, whose rate isn't known"
        reason = (host if report.host_bytes else report.at_least) or (
            "kernels of unknown FLOPs may take more than a tenth of its time"
        )
        return [f"What bounds this program isn't known: {reason}."]
    whole, alone = report.time_at_roof or 0.0, [k for k in report.kernels if not k.work.overlaps]
    limited = [k.roof_seconds or 0.0 for k in alone if bound_of(k.limit or "") == report.bound]
    by_bytes = sum(kernel.times.get("hbm", 0.0) for kernel in report.kernels)
    busiest = max(report.timeline.busy.values(), default=0.0)
    name, taken, seconds = {
        "memory": ("memory", "its bytes take", by_bytes),
        "network": ("the network", "its exchanges take", max(busiest, sum(limited))),
        "compute": ("arithmetic", "kernels that FLOPs limit take", sum(limited)),
        "latency": ("its launches", "the floor of launches takes", sum(limited)),
    }[report.bound]
    said = f"This program is bound by {name}: {taken} {_share(seconds, whole)} of its least "
    return [f"{said}time, {_roof(report)} by published peaks.", CHANGES[report.bound]]


def _share(seconds: float, whole: float) -> str:
    return "all" if seconds >= 0.995 * whole else f"{seconds / whole:.0%}"


def summary(report: Report) -> list[tuple[str, str]]:
    """Return what was counted: label and text."""
    more = "at least " if report.unknown else ""
    known = [end.intensity for end in report.ends]
    numbers = " to ".join(dict.fromkeys(map(significant, sorted(filter(None, known)))))
    intensity = "unknown" if None in known else f"{more}{numbers or 0} FLOP/byte"
    said = [si(report.xla_flops, "FLOP")] if report.xla_flops is not None else []
    said += [f"{si(report.xla_bytes, 'B')} accessed"] if report.xla_bytes is not None else []
    arguments = ", ".join(report.arguments)
    return [
        *_times(report),
        *_counts(report),
        ("intensity", intensity),
        *([("arguments", arguments)] if arguments else []),
        ("cost_analysis", ", ".join(said) or "nothing"),
        *_exchanges(report),
    ]


def _why_bound_depends(report: Report) -> str:
    """Return why the bound of a report depends on assumptions."""
    reasons = []
    if len(report.ends) > 1:
        reasons.append(f"data choose branches ({_roof(report)} by published peaks)")
    elif report.most_bytes > report.hbm_bytes:
        reasons.append("data choose")
    assumed = None if report.chip is None else assumed_vector_peak(report.chip)
    if assumed is not None and any(kernel.most_limit == "vector" for kernel in report.kernels):
        reasons.append(f"vector work is assumed to reach {si(assumed[0], 'FLOP/s')} at most")
    if "latency" in report.bounds:
        launches = sum(kernel.launches for kernel in report.kernels if not kernel.work.overlaps)
        reasons.append(
            f"with {si(report.floor or 0, 's')} for each launch and each iteration of a loop "
            f"({launches:,}) it takes {si(report.time_with_floor or 0, 's')}"
        )
    return "; ".join(reasons)


def _counts(report: Report) -> list[tuple[str, str]]:
    flops = f"{_flops(report)}: matrix {_between(report, 'matrix_flops', 'FLOP')}, vector "
    flops += f"{_between(report, 'vector_flops', 'FLOP')}, of which "
    flops += f"{_between(report, 'transcendentals', '')} transcendental"
    moved = f"{_between(report, 'read_bytes', 'B')} read, "
    moved += f"{_between(report, 'written_bytes', 'B')} written"
    hbm = f"{_range(report.hbm_bytes, report.most_bytes, 'B')}: {moved}"
    lines = [("FLOPs", flops), ("HBM", hbm)]
    more = "at least " if report.unknown else ""
    if report.extra is not None and report.extra > 1.02:
        asked = si((report.requested_flops or 0) / report.devices, "FLOP")
        times = f"{more}{report.extra:.2f} times the {asked} of matmuls asked for"
        lines.append(("of these", f"{times}: {_why_extra_flops(report)}"))
    if report.memory is not None:
        lines.append(("memory", _memory(report, report.memory)))
    if report.host_bytes:
        to = sum(kernel.written.get("host", 0) for kernel in report.kernels)
        back = sum(kernel.read.get("host", 0) for kernel in report.kernels)
        sides = f"{si(to, 'B')} to it, {si(back, 'B')} from it"
        unknown = "its Python's" if report.platform == "cpu" else "the rate of its link"
        lines.append(("host", f"{sides}: no time, as {unknown} isn't known"))
    others = {k: v for k, v in report.traffic.items() if k not in ("hbm", "host") and v >= 1024}
    if others:
        listed = ", ".join(f"{level} {si(n, 'B')}" for level, n in sorted(others.items()))
        lines.append(("other traffic", listed))
    return lines


def _why_extra_flops(report: Report) -> str:
    """Return why a program does more matmul FLOPs than were asked for, as far as it shows.

    What `jax.checkpoint` computes again was asked for: it stands in the function's own program.
    """
    again = sum(kernel.matrix_flops for kernel in report.kernels if ".remat" in kernel.name)
    if again:
        return f"the compiler computes {si(again, 'FLOP')} again, so as to need less memory"
    if report.devices > 1:
        return f"{report.devices} devices do some of the same, where a sharding was lost"
    return "done twice, or on zeros that the compiler adds (padding, groups made dense, dilation)"


def _range(least: float, most: float, unit: str) -> str:
    """Return a number, or two if it depends on data."""
    least, most = min(least, most), max(least, most)
    if math.isinf(most):
        return f"at least {si(least, unit)}"
    if most <= 1.01 * least:
        return si(least, unit).strip()
    return f"{si(least, unit).strip()} to {si(most, unit).strip()}"


def _between(report: Report, name: str, unit: str) -> str:
    """Return a count of the cheapest branches and of the dearest, if they differ."""
    ends = [getattr(end, name) for end in report.ends]
    return _range(ends[0], ends[-1], unit)


def _flops(report: Report) -> str:
    return _range(report.flops, report.most_flops, "FLOP")


def _roof(report: Report) -> str:
    """Return the time by published peaks, at least or from the cheapest to the dearest branches."""
    open_ended = report.at_least or any(end.host_bytes for end in report.ends)
    most = math.inf if open_ended else max(end.time_at_roof or 0.0 for end in report.ends)
    return _range(report.time_at_roof or 0.0, most, "s")


def _memory(report: Report, memory: MemoryStats) -> str:
    """Return the HBM that a program needs, and the HBM of a device."""
    parts = f"{si(memory.arguments, 'B')} arguments, {si(memory.temporaries, 'B')} temporaries"
    text = f"{si(memory.total, 'B')} at most: {parts}"
    hbm = report.chip.memory["hbm"].capacity if report.chip is not None else None
    return f"{text}; of {si(hbm.value, 'B')}" if hbm is not None else text


def _times(report: Report) -> list[tuple[str, str]]:
    """Return the three numbers, and other counts of the time on one line."""
    lines = [("needed", why_needed(report.needed, report.chip))]
    others = []
    if report.expected is not None:
        why = f": {report.expected.why}" if report.expected.why else ""
        lines.append(("compiled", f"{report.expected}{why}"))
        lines.append(("clock", "nothing ran"))
        others = [f"the compiled program's roof {_roof(report)}, by published peaks"]
    if report.cycle_seconds is not None and report.clock is not None:
        missing = (
            f", {many(report.without_cycles, 'kernel')} without" if report.without_cycles else ""
        )
        hertz, source = report.clock
        clock = f"clock {si(hertz, 'Hz')}, {source}"
        others.append(f"compiler's cycles alone {si(report.cycle_seconds, 's')}{missing} ({clock})")
    if report.xla_seconds is not None:
        once = " (loops once)" if any(k.launches > 1 for k in report.kernels) else ""
        others.append(f"XLA's optimal_seconds {si(report.xla_seconds, 's')}{once}")
    return [*lines, ("other counts", "; ".join(others))] if others else lines


_SIZES = attrgetter("kind", "axis", "group_size", "bytes_in", "bytes_out")


def _exchanges(report: Report) -> list[tuple[str, str]]:
    alike: dict[tuple[Any, ...], list[list[TimedCollective]]] = {}
    for number, end in enumerate(report.ends):
        for exchange in end.exchanges:
            same = alike.setdefault(_SIZES(exchange.collective), [[] for _ in report.ends])
            same[number].append(exchange)
    lines = []
    for (kind, axis, size, into, out), same in alike.items():
        along = f" along {axis}" if axis else ""
        times = [sum(exchange.collective.launches for exchange in end) for end in same]
        often = " to ".join(f"{n}" for n in sorted(set(times)))
        text = f"{si(into, 'B')} in, {si(out, 'B')} out, {size} devices{along}, {often} ×"
        if report.chip is not None:
            seconds = [sum(exchange.seconds for exchange in end) for end in same]
            exposed = [sum(exchange.exposed for exchange in end) for end in same]
            text += f", {_range(seconds[0], seconds[-1], 's')}, of which "
            text += f"{_range(exposed[0], exposed[-1], 's')} exposed"
        lines.append((kind, text))
    return lines


def _listed(report: Report) -> tuple[list[str], list[list[str]]]:
    """Return the head and the rows of the kernels that are listed, without empty columns."""
    rows = []
    for kernel, likely in _costliest(report):
        cells = _cells(kernel.busiest)
        first = {name: cells.pop(name) for name in ("role", "launches", "limit")}
        seconds = None if kernel.work.overlaps else _micro([likely])
        rows.append(first | {"launches": _launches(kernel), "expected µs": seconds} | cells)
    head = []
    for name in rows[0] if rows else ():
        values = {row[name] for row in rows} - {None, ""}
        if values and (name != "launches" or values != {1}):
            head.append(name)
    return head, [[_shown(row[name]) for name in head] for row in rows]


Table = tuple[list[str], list[list[str]], str]
"""A head, rows, and a line below them."""


def tables(report: Report) -> list[Table]:
    """Return the tables to list: the kernels, after groups of them for a long program."""
    listed: list[Table] = []
    if len(report.kernels) > LONG:
        listed.append(groups_listed(report))
    head, cells = _listed(report)
    more = len(report.kernels) - SHOWN
    below = f"… and {many(more, 'cheaper kernel')}" if more > 0 else ""
    return [*listed, (head, cells, below)] if cells else listed


def groups_listed(report: Report, by: str = "scope") -> Table:
    """Return groups as they are listed, those that take longest first."""
    groups = report.groups(by)
    likely = dict(zip(map(id, report.kernels), report.likely, strict=True))
    rows = []
    for name, kernels in list(groups.items())[:PAGE]:
        told = _micro([likely[id(kernel)] for kernel in kernels if not kernel.work.overlaps])
        rows.append(_group_cells(name, kernels, told))
    more = len(groups) - PAGE
    below = f"… and {many(more, 'cheaper group')}" if more > 0 else ""
    cells = [[_shown(cell) for cell in row.values()] for row in rows]
    return (list(rows[0]) if rows else []), cells, below


def _group_cells(
    name: str, kernels: Sequence[CompiledKernel], expected: float | str | None
) -> dict[str, Any]:
    """Return one row of a table of groups: totals over all launches."""
    return {
        "where": name,
        "kernels": len(kernels),
        "limit": longest_of(
            kernels, lambda kernel: "" if kernel.work.overlaps else kernel.limit or ""
        ),
        "expected µs": expected,
        "roof µs": seconds_of(kernels) * 1e6,
        "cycles µs": cycle_seconds_of(kernels) * 1e6 or None,
        "HBM MB": sum(kernel.hbm_bytes for kernel in kernels) / 1e6,
        "matrix MFLOP": sum(kernel.matrix_flops for kernel in kernels) / 1e6,
        "line": line_of(kernels),
    }


def _micro(likely: Sequence[Expected]) -> float | str | None:
    """Return the µs to expect of kernels together; None where nothing is known of them."""
    micro = sum(each.known for each in likely) * 1e6
    if all(each.seconds is not None for each in likely):
        return micro
    return f"≥ {_shown(micro)}" if micro else None


def _costliest(report: Report) -> list[tuple[CompiledKernel, Expected]]:
    """Return the kernels that are listed, in the order in which they run, and their time.

    Where data choose branches it is that of the most launches, as all that is listed of them.
    """
    listed = []
    for kernel, least in zip(report.kernels, report.likely, strict=True):
        chosen = kernel.busiest.launches != kernel.launches
        listed.append((kernel, expected_of(kernel.busiest) if chosen else least))

    def cost(index: int) -> tuple[float, ...]:
        kernel, likely = listed[index][0].busiest, listed[index][1]
        roof = kernel.roof_seconds or 0.0
        known = 0.0 if kernel.work.overlaps else likely.known
        return max(known, roof), kernel.hbm_bytes, kernel.flops or 0.0

    running = [n for n, (kernel, _) in enumerate(listed) if kernel.busiest.launches]
    dearest = sorted(running, key=cost, reverse=True)[:SHOWN]
    return [listed[index] for index in sorted(dearest)]


def _launches(kernel: CompiledKernel) -> int | str:
    """Return how often a kernel runs, from the cheapest to the dearest branches."""
    most = kernel.busiest.launches
    least = min(kernel.launches, kernel.work.at_dearest.launches)
    return most if least == most else f"{least} to {most}"


def _cells(kernel: CompiledKernel) -> dict[str, Any]:
    """Return one row of a report's table."""

    def micro(seconds: float | None) -> float | None:
        return None if seconds is None else seconds * 1e6

    row = kernel.work
    unknown = "unknown" if kernel.flops is None or row.at_least else None
    return {
        "role": row.role,
        "launches": kernel.launches,
        "limit": "unknown" if unknown else kernel.limits,
        "roof µs": micro(kernel.roof_seconds),
        "FLOP/byte": kernel.intensity,
        "read MB": row.read_bytes * kernel.launches / 1e6,
        "written MB": row.written_bytes * kernel.launches / 1e6,
        "matrix MFLOP": unknown or kernel.matrix_flops / 1e6,
        "vector MFLOP": unknown or kernel.vector_flops / 1e6,
        "cycles µs": micro(kernel.cycle_seconds),
        "line": str(row.source or ""),
        "kernel": kernel.name,
    }


def _shown(value: Any) -> str:
    return cell(float(f"{value:.3g}") if isinstance(value, float) else value)


# --- the whole ------------------------------------------------------------------------------------


def parts(report: Report, by: str | None = None) -> list[str | Grid]:
    """Return what is printed: the answer in words, what to change, counts, caveats, tables.

    A long program has groups of its kernels too.
    """
    listed = tables(report) if by is None else [groups_listed(report, by)]
    causes, others = ([(n, _cause(f)) for n, f in some] for some in numbered(report.findings or ()))
    notes = [("-", note) for note in report.notes]
    lines: list[str | Grid] = [title(report), "", " ".join(answer(report))]
    lines += [Heading(TO_CHANGE), Grid(["", ""], causes[:FIRST])] if causes else []
    lines += [Heading("what was counted"), Grid(["", ""], summary(report))]
    lines += [Heading("caveats"), Grid(["", ""], notes)] if notes else []
    for head, cells, below in listed:
        lines += [Heading(f"by {head[0]}"), Grid(head, cells), *([below] if below else [])]
    lines += [Heading(FURTHER), Grid(["", ""], causes[FIRST:])] if causes[FIRST:] else []
    lines += [Heading(LONGEST), Grid(["", ""], others)] if others else []
    return [*lines, "", f"({compiled_by(report)})"]


TO_CHANGE, FIRST = "what to change, the largest loss first", 3
"""The heading of causes, and how many of them come before the tables."""

FURTHER, LONGEST = "further causes", "long kernels without a known cause"
"""Headings of the others, and of what only says how a kernel stands to its roof."""

Numbered: TypeAlias = list[tuple[str, "Finding"]]


def numbered(findings: Sequence[Finding]) -> tuple[Numbered, Numbered]:
    """Return the causes with their numbers, and what is said of kernels without one.

    What bounds a kernel that is near its roof by the compiler stands in the table: the answer names
    the bound of the program, which may be another.
    """
    causes = [found for found in findings if _is_cause(found)]
    others: Numbered = []
    for found in findings:
        if not _is_cause(found) and not found.cause.startswith("least-"):
            told = any(found.advice == other.advice for _, other in others)
            others.append(("-", replace(found, remedy="the same") if told else found))
    return [(f"{n}.", found) for n, found in enumerate(causes, 1)], others


def _cause(found: Finding) -> str:
    return cause_told(found, cost(found))


def cause_told(found: Finding, cost: str) -> str:
    """Return a cause as it is listed: what is wrong and where, evidence, cost, advice."""
    where = f" ({found.source})" if found.source else ""
    told = [f"{found.title}{where}", found.evidence, cost]
    return "\n".join(line for line in (*told, f"try: {found.advice}") if line)


def cost(found: Finding, checked: bool = False) -> str:
    """Return a cause's share of the call; with the seconds of pairs of programs where that ran."""
    if not found.named or not found.share:
        return ""
    share = "all" if found.share >= 0.995 else f"{found.share:.0%}"
    text = f"{'in kernels that take ' if found.kernels else ''}{share} of the call"
    if found.known and found.saves is None:
        return f"{text}: costs {si(found.seconds, 's')}"
    if found.saves is None or not checked:
        return f"{text}; what the remedy takes isn't known" if found.kind else text
    low, high = (si(seconds, "s") for seconds in found.saves)
    return f"{text}: costs {low} to {high}, by {found.checked}"


def html(report: Report, whole: bool = False) -> str:
    """Return a report as HTML: one page, or a piece of a notebook."""
    causes, others = ([(f, cost(f)) for _, f in some] for some in numbered(report.findings or ()))
    sections = [
        (sentence(TO_CHANGE)[:-1], "causes", causes),
        ("What was counted", "facts", summary(report)),
        ("Caveats", "notes", report.notes),
        *((f"By {head[0]}", "grid", (head, cells, below)) for head, cells, below in tables(report)),
        (sentence(LONGEST)[:-1], "causes", others),
    ]
    return page(title(report), answer(report), sections, compiled_by(report), whole)


def table(report: Report) -> pandas.DataFrame:
    """Return one row per kernel, in the order in which they run."""
    import pandas

    frame = pandas.DataFrame([_cells(kernel) for kernel in report.kernels])
    frame.attrs["notes"] = list(report.notes)
    return frame.set_index("kernel") if len(frame) else frame
