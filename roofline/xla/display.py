"""A report for people: as text, as HTML, as a table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from roofline.terminal import Grid, Heading
from roofline.xla.kernel import CompiledKernel, cycle_seconds_of, line_of, longest_of, seconds_of
from roofline.xla.targets import assumed_vector_peak
from roofline_helpers.common.show import cell, si, significant, template
from roofline_helpers.roofline import bound_of

if TYPE_CHECKING:
    import pandas

    from roofline.xla.compiler import MemoryStats
    from roofline.xla.kernel import TimedCollective
    from roofline.xla.report import Report

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
    """Return the compiled function and its target."""
    where = report.chip.name if report.chip is not None else report.target
    many = f", one of {report.devices} devices" if report.devices > 1 else ""
    return f"{report.name}({', '.join(report.arguments)}) compiled for {where}{many}"


def headline(report: Report) -> str:
    """Return a report in a line: target, FLOPs, bytes, seconds, kernels."""
    flops, hbm = _flops(report), _range(report.hbm_bytes, report.most_bytes, "B")
    parts = [f"{flops}, {hbm} of HBM"]
    if report.host_bytes:
        parts.append(f"{si(report.host_bytes, 'B')} to and from the host")
    if report.time_at_roof is not None:
        parts.append(f"{_roof(report)} by the roof")
    if report.bound:
        parts.append(f"bound by {report.bound}")
    kernels = len(report.kernels)
    parts.append(f"{kernels} kernel{'' if kernels == 1 else 's'}")
    return f"{report.name} for {report.target}: {', '.join(parts)}"


def compiled_by(report: Report) -> str:
    """Return the versions of JAX and of the compiler."""
    return f"JAX {report.jax_version}, {report.compiler}"


def answer(report: Report) -> str:
    """Return what a colleague would say first: what bounds the program with its reason, so what.

    A bound is named only if it survives assumed peaks, bytes that data choose, and floors.
    """
    if report.chip is None:
        return f"No bound: {report.target} is not in the chip table, so there is work and no time."
    if len(report.bounds) > 1:
        either = " or ".join(report.bounds)
        return f"What bounds this program depends, {either}, for {_why_bound_depends(report)}."
    if not any(kernel.busiest.launches for kernel in report.kernels):
        return "This program runs no kernel, so nothing bounds it."
    if report.bound is None:
        host = f"{si(report.host_bytes, 'B')} cross the link to the host, whose rate isn't known"
        reason = (host if report.host_bytes else report.at_least) or (
            "kernels of unknown FLOPs may take more than a tenth of its time"
        )
        return f"What bounds this program isn't known: {reason}."
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
    said = f"This program is bound by {name}: {taken} {_share(seconds, whole)} of its least time, "
    said += f"{si(whole, 's')} by published peaks"
    if len(report.ends) > 1:
        dearest = si(report.ends[-1].time_at_roof or 0.0, "s")
        said += f" if data choose the cheapest branches, {dearest} if the dearest"
    said += f". {CHANGES[report.bound]}"
    if not alone:
        return said
    slowest = max(alone, key=lambda kernel: kernel.roof_seconds or 0.0)
    source = f" ({slowest.work.source})" if slowest.work.source else ""
    share = _share(slowest.roof_seconds or 0.0, whole)
    return f"{said} The longest kernel is {slowest.work.role}{source}, {share} of that time."


def _share(seconds: float, whole: float) -> str:
    return "all" if seconds >= 0.995 * whole else f"{seconds / whole:.0%}"


def summary(report: Report) -> list[tuple[str, str]]:
    """Return what was counted: label and text."""
    more = "at least " if report.unknown else ""
    known = [end.intensity for end in report.ends]
    numbers = " to ".join(significant(each) for each in sorted(filter(None, known)))
    intensity = "unknown" if None in known else f"{more}{numbers or 0} FLOP/byte"
    said = [si(report.xla_flops, "FLOP")] if report.xla_flops is not None else []
    said += [f"{si(report.xla_bytes, 'B')} accessed"] if report.xla_bytes is not None else []
    return [
        *_counts(report),
        ("intensity", intensity),
        *_times(report),
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
        to, back = (
            sum(book.get("host", 0) for book in books)
            for books in ([k.written for k in report.kernels], [k.read for k in report.kernels])
        )
        sides = f"{si(to, 'B')} to it, {si(back, 'B')} from it"
        unknown = "its Python's" if report.platform == "cpu" else "the rate of its link"
        lines.append(("host", f"{sides}: no time, as {unknown} isn't known"))
    others = {k: v for k, v in report.traffic.items() if k not in ("hbm", "host") and v >= 1024}
    if others:
        listed = ", ".join(f"{level} {si(n, 'B')}" for level, n in sorted(others.items()))
        lines.append(("other traffic", listed))
    return lines


def _why_extra_flops(report: Report) -> str:
    """Return why a program does more matmul FLOPs than were asked for, as far as it shows."""
    if any(kernel.matrix_flops and kernel.work.step == "recomputed" for kernel in report.kernels):
        return "some are computed again"
    if report.devices > 1:
        return "devices do some of the same"
    return "done twice, or on zeros that the compiler adds (groups made dense, dilation)"


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
    """Return the bound, the time to expect, and other counts of the time on one line."""
    lines, others = [], []
    if report.time_at_roof is not None and report.expected is not None:
        bound = f"{si(report.time_at_roof, 's')} at least, by published peaks"
        if len(report.ends) > 1:
            dearest = si(report.ends[-1].time_at_roof or 0.0, "s")
            bound += f"; {dearest} if data choose the dearest branches"
        lines = [("bound", bound), ("expected", f"{report.expected}: {report.expected.why}")]
    if report.cycle_seconds is not None and report.clock is not None:
        missing = f", {report.without_cycles} kernels without" if report.without_cycles else ""
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
    rows = [
        _cells(kernel.busiest) | {"launches": _launches(kernel)} for kernel in _costliest(report)
    ]
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
        listed.append(groups_listed(report.groups()))
    head, cells = _listed(report)
    more = len(report.kernels) - SHOWN
    below = f"… and {more} cheaper kernels" if more > 0 else ""
    return [*listed, (head, cells, below)] if cells else listed


def groups_listed(groups: Mapping[str, Sequence[CompiledKernel]]) -> Table:
    """Return groups as they are listed, those that take longest first."""
    rows = [_group_cells(name, kernels) for name, kernels in list(groups.items())[:PAGE]]
    more = len(groups) - PAGE
    below = f"… and {more} groups that take less" if more > 0 else ""
    cells = [[_shown(cell) for cell in row.values()] for row in rows]
    return (list(rows[0]) if rows else []), cells, below


def _group_cells(name: str, kernels: Sequence[CompiledKernel]) -> dict[str, Any]:
    """Return one row of a table of groups: totals over all launches."""
    return {
        "where": name,
        "kernels": len(kernels),
        "limit": longest_of(
            kernels, lambda kernel: "" if kernel.work.overlaps else kernel.limit or ""
        ),
        "roof µs": seconds_of(kernels) * 1e6,
        "cycles µs": cycle_seconds_of(kernels) * 1e6 or None,
        "HBM MB": sum(kernel.hbm_bytes for kernel in kernels) / 1e6,
        "matrix MFLOP": sum(kernel.matrix_flops for kernel in kernels) / 1e6,
        "line": line_of(kernels),
    }


def _costliest(report: Report) -> list[CompiledKernel]:
    """Return the kernels that are listed, in the order in which they run."""

    def cost(index: int) -> tuple[float, float, float]:
        kernel = report.kernels[index].busiest
        return kernel.roof_seconds or 0.0, kernel.hbm_bytes, kernel.flops or 0.0

    running = [n for n, kernel in enumerate(report.kernels) if kernel.busiest.launches]
    dearest = sorted(running, key=cost, reverse=True)[:SHOWN]
    return [report.kernels[index] for index in sorted(dearest)]


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
    """Return what is printed: the answer in words, counts, caveats, then the tables.

    A long program has groups of its kernels too.
    """
    listed = tables(report) if by is None else [groups_listed(report.groups(by))]
    notes = [("-", note) for note in report.notes]
    lines: list[str | Grid] = [title(report), "", answer(report)]
    lines += [Heading("what was counted"), Grid(["", ""], summary(report))]
    lines += [Heading("caveats"), Grid(["", ""], notes)] if notes else []
    for head, cells, below in listed:
        lines += [Heading(f"by {head[0]}"), Grid(head, cells), *([below] if below else [])]
    return [*lines, "", f"({compiled_by(report)})"]


def html(report: Report) -> str:
    """Return a report as HTML."""
    page = template("xla/report.html", "roofline")
    words = {"title": title(report), "answer": answer(report), "summary": summary(report)}
    return str(
        page.render(words, tables=tables(report), notes=report.notes, by=compiled_by(report))
    )


def table(report: Report) -> pandas.DataFrame:
    """Return one row per kernel, in the order in which they run."""
    import pandas

    frame = pandas.DataFrame([_cells(kernel) for kernel in report.kernels])
    frame.attrs["notes"] = list(report.notes)
    return frame.set_index("kernel") if len(frame) else frame
