"""A report for people: as text, as HTML, as a table, on a roofline."""

from __future__ import annotations

import html as markup
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from roofline_helpers.common.checks import BadValue
from roofline_helpers.common.show import si, significant
from roofline_helpers.evidence import files
from roofline_helpers.evidence.typical import beside
from roofline_helpers.xla.kernel import CompiledKernel, Group, main_dtype
from roofline_helpers.xla.targets import assumed_vector_peak

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

    from roofline_helpers.xla.kernel import Exchange
    from roofline_helpers.xla.report import Report

SHOWN = 12
"""How many kernels the text of a report lists."""

LONG, PAGE = 30, 24
"""Kernels of a program from which on its groups are listed too, and how many of these."""


# --- the pieces -----------------------------------------------------------------------------------


def title(report: Report) -> str:
    """Return what was compiled, and for what."""
    where = report.chip.name if report.chip is not None else report.target
    many = f", one of {report.devices} devices" if report.devices > 1 else ""
    return f"{report.name}({', '.join(report.arguments)}) compiled for {where}{many}"


def compiled_by(report: Report) -> str:
    """Return what compiled it."""
    return f"JAX {report.jax_version}, {report.compiler}"


def summary(report: Report) -> list[tuple[str, str]]:
    """Return the lines above the kernels, label and text."""
    intensity = f"{significant(report.intensity)} FLOP/byte"
    if report.chip is not None and report.bound:
        intensity += f", bound by {report.bound}"
    elif report.chip is not None and report.bounds:
        intensity += f", bound by {' or '.join(report.bounds)}: {_because(report)}"
    elif report.chip is not None and report.unknown:
        intensity += ", bound unknown, as are FLOPs"
    return [
        *_counts(report),
        ("intensity", intensity),
        *_times(report),
        *_like(report),
        ("cost_analysis", _cost_analysis(report)),
        *_exchanges(report),
    ]


def _like(report: Report) -> list[tuple[str, str]]:
    """Return what measured kernels like the longest matmul take, on GPUs that have such data."""
    products = [kernel for kernel in report.kernels if kernel.row.matmul]
    if report.chip is None or not products:
        return []
    longest = max(products, key=lambda kernel: kernel.roof_seconds or 0.0)
    line = beside(longest.row.matmul, main_dtype(longest.row.matrix_types), report.chip)
    return [("kernels like it", line)] if line else []


def _because(report: Report) -> str:
    """Return what it depends on what bounds a report."""
    reasons = []
    if report.most_bytes > report.hbm_bytes:
        reasons.append("data choose")
    assumed = None if report.chip is None else assumed_vector_peak(report.chip)
    if assumed is not None and any(kernel.most_limit == "vector" for kernel in report.kernels):
        reasons.append(f"vector work is assumed to reach {si(assumed[0], 'FLOP/s')} at most")
    if "latency" in report.bounds:
        launches = sum(kernel.launches for kernel in report.kernels if not kernel.row.overlaps)
        reasons.append(
            f"with {si(report.floor or 0, 's')} for each launch and each turn of a loop "
            f"({launches:,}) it takes {si(report.time_with_floor or 0, 's')}"
        )
    return "; ".join(reasons)


def _counts(report: Report) -> list[tuple[str, str]]:
    more = "at least " if report.unknown else ""
    lines = [
        (
            "FLOPs",
            f"{more}{si(report.flops, 'FLOP')}: matrix {si(report.matrix_flops, 'FLOP')}, vector "
            f"{si(report.vector_flops, 'FLOP')}, of which {si(report.transcendentals, '').strip()} "
            "transcendental",
        ),
        (
            "HBM",
            f"{_range(report.hbm_bytes, report.most_bytes, 'B')}: "
            f"{si(report.read_bytes, 'B')} read, {si(report.written_bytes, 'B')} written",
        ),
    ]
    if report.extra is not None and report.extra > 1.02:
        asked = si((report.requested_flops or 0) / report.devices, "FLOP")
        extra = (
            f"{report.extra:.2f} times the {asked} of products asked for: some are computed again"
        )
        lines.append(("of these", extra))
    if report.memory is not None:
        lines.append(("memory", _memory(report)))
    if report.tiled_bytes != report.hbm_bytes:
        lines.append(("with the tiles' re-reads", si(report.tiled_bytes, "B")))
    if report.padding_bytes > 0.01 * report.hbm_bytes:
        lines.append(("padding of tiles adds", si(report.padding_bytes, "B")))
    others = {k: v for k, v in report.traffic.items() if k != "hbm" and v >= 1024}
    if others:
        listed = ", ".join(f"{level} {si(n, 'B')}" for level, n in sorted(others.items()))
        lines.append(("other traffic", listed))
    return lines


def _range(least: float, most: float, unit: str) -> str:
    """Return a number, or two where data decide."""
    return si(least, unit) if most <= 1.01 * least else f"{si(least, unit)} to {si(most, unit)}"


def _memory(report: Report) -> str:
    """Return what a program needs of a device's HBM, and how much there is."""
    memory = report.memory
    assert memory is not None
    parts = f"{si(memory.arguments, 'B')} arguments, {si(memory.temporaries, 'B')} temporaries"
    text = f"{si(memory.total, 'B')} at most: {parts}"
    hbm = report.chip.memory["hbm"].capacity if report.chip is not None else None
    return f"{text}; of {si(hbm.value, 'B')}" if hbm is not None else text


def _times(report: Report) -> list[tuple[str, str]]:
    kernels = report.kernels
    times = {
        "roofline": report.time_at_roof,
        "compiler's cycles": report.cycle_seconds,
        "XLA's optimal_seconds": report.xla_seconds,
    }
    more = {
        "compiler's cycles": f" (none for {report.without_cycles} kernels)"
        if report.without_cycles
        else "",
        "XLA's optimal_seconds": " (loops once)" if any(k.launches > 1 for k in kernels) else "",
    }
    most = {"roofline": report.time_at_most or 0.0}
    listed = ", ".join(
        f"{name} {_range(t, most.get(name, t), 's')}{more.get(name, '')}"
        for name, t in times.items()
        if t is not None
    )
    lines = [("time", listed)] if listed else []
    if report.cycle_seconds is not None and report.clock is not None:
        hertz, source = report.clock
        lines.append(("clock", f"{si(hertz, 'Hz')} ({source})"))
        if not all(k.cycles_hold for k in kernels if k.row.cycles is not None):
            lines.append(("the cycles", files.worth_of_cycles()))
    return lines


def _cost_analysis(report: Report) -> str:
    parts = []
    if report.xla_flops is not None:
        parts.append(si(report.xla_flops, "FLOP"))
    if report.xla_bytes is not None:
        parts.append(f"{si(report.xla_bytes, 'B')} accessed")
    return ", ".join(parts) or "nothing"


def _exchanges(report: Report) -> list[tuple[str, str]]:
    alike: dict[tuple[Any, ...], list[Exchange]] = {}
    for exchange in report.exchanges:
        each = exchange.collective
        key = (each.kind, each.axis, each.group_size, each.bytes_in, each.bytes_out)
        alike.setdefault(key, []).append(exchange)
    lines = []
    for (kind, axis, size, into, out), same in alike.items():
        along = f" along {axis}" if axis else ""
        times = sum(exchange.collective.launches for exchange in same)
        text = f"{si(into, 'B')} in, {si(out, 'B')} out, {size} devices{along}, {times} ×"
        if report.chip is not None:
            seconds = sum(exchange.seconds for exchange in same)
            exposed = sum(exchange.exposed for exchange in same)
            text += f", {si(seconds, 's')}, of which {si(exposed, 's')} exposed"
            slow = sum(exchange.collective.launches for exchange in same if exchange.latency_bound)
            if slow:
                text += ", bound by latency" + (": one would do for all" if slow > 3 else "")
        lines.append((kind, text))
    return lines


def _listed(report: Report) -> tuple[list[str], list[list[str]]]:
    """Return the head and the rows of the kernels that are listed, without empty columns."""
    rows = [_cells(kernel) for kernel in _costliest(report)]
    for row in rows:
        del row["inside" if row["role"] else "role"]
    columns = {n: {row[n] for row in rows} - {None, ""} for n in (rows[0] if rows else {})}
    head = [n for n, values in columns.items() if values and (n != "launches" or values != {1})]
    return head, [[_shown(row[name]) for name in head] for row in rows]


Table = tuple[list[str], list[list[str]], str]
"""A head, rows, and a line below them."""


def tables(report: Report) -> list[Table]:
    """Return what is listed: the kernels, and of a long program groups of them first."""
    listed: list[Table] = []
    if len(report.kernels) > LONG:
        listed.append(groups_listed(report.groups()))
    head, cells = _listed(report)
    return [*listed, (head, cells, _cheaper(report) or "")] if cells else listed


def groups_listed(groups: Sequence[Group]) -> Table:
    """Return groups as they are listed, those that take longest first."""
    rows = [[_shown(cell) for cell in _group_cells(group).values()] for group in groups[:PAGE]]
    more = len(groups) - PAGE
    below = f"… and {more} groups that take less" if more > 0 else ""
    return (list(_group_cells(groups[0])) if groups else []), rows, below


def _group_cells(group: Group) -> dict[str, Any]:
    """Return one row of a table of groups."""
    return {
        "where": group.name,
        "kernels": len(group.kernels),
        "limit": group.limit,
        "roof µs": group.seconds * 1e6,
        "cycles µs": group.cycle_seconds * 1e6 or None,
        "HBM MB": group.hbm_bytes / 1e6,
        "matrix MFLOP": group.matrix_flops / 1e6,
        "line": group.line,
    }


def group_table(groups: Sequence[Group]) -> pandas.DataFrame:
    """Return one row a group, those that take longest first."""
    import pandas

    frame = pandas.DataFrame([_group_cells(group) for group in groups])
    return frame.set_index("where") if len(frame) else frame


def _costliest(report: Report) -> list[CompiledKernel]:
    """Return the kernels that are listed, in the order in which they run."""

    def cost(kernel: CompiledKernel) -> tuple[float, float, float]:
        roof, cycles = kernel.roof_seconds or 0, kernel.cycle_seconds or 0
        # Cycles rank where they were held against times, and where there is nothing else
        seconds = max(roof, cycles) if kernel.cycles_hold or not roof else roof
        return seconds, kernel.hbm_bytes, kernel.flops or 0

    places = range(len(report.kernels))
    dearest = sorted(places, key=lambda i: cost(report.kernels[i]), reverse=True)[:SHOWN]
    return [report.kernels[i] for i in sorted(dearest)]


def _cells(kernel: CompiledKernel) -> dict[str, Any]:
    """Return one row of a report's table."""

    def micro(seconds: float | None) -> float | None:
        return None if seconds is None else seconds * 1e6

    row = kernel.row
    unknown = "unknown" if kernel.flops is None else None
    again = row.tile_read is not None and kernel.tiled_bytes != kernel.hbm_bytes
    inside = ", ".join(f"{n} {op}" if n > 1 else op for op, n in row.operations.items())
    return {
        "kernel": kernel.name,
        "launches": kernel.launches,
        "limit": "unknown" if unknown else kernel.limits,
        "roof µs": micro(kernel.roof_seconds),
        "FLOP/byte": kernel.intensity,
        "read MB": kernel.read.get("hbm", 0) / 1e6,
        "written MB": kernel.written.get("hbm", 0) / 1e6,
        "with re-reads MB": kernel.tiled_bytes / 1e6 if again else None,
        "matrix MFLOP": unknown or kernel.matrix_flops / 1e6,
        "vector MFLOP": unknown or kernel.vector_flops / 1e6,
        "cycles µs": micro(kernel.cycle_seconds),
        "XLA µs": micro(kernel.xla_seconds),
        "line": str(row.source or ""),
        "role": row.role,
        "inside": inside if row.opcode == "fusion" else row.opcode,
    }


def _shown(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return significant(value)
    text = str(value)
    return text if len(text) <= 44 else text[:43] + "…"


def _cheaper(report: Report) -> str | None:
    """Return how many kernels are not listed; None if all are."""
    more = len(report.kernels) - SHOWN
    return f"… and {more} cheaper kernels" if more > 0 else None


# --- the whole ------------------------------------------------------------------------------------


def text(report: Report) -> str:
    """Return a report as plain text: a long program by groups of its kernels."""
    above = summary(report)
    width = max(len(name) for name, _ in above)
    lines = [title(report), *(f"  {name.ljust(width)}  {line}" for name, line in above)]
    for head, cells, below in tables(report):
        widths = [max(map(len, column)) for column in zip(head, *cells, strict=True)]
        lines.append("")
        for row in [head, *cells]:
            first, *inner, last = row
            inner = [cell.rjust(w) for cell, w in zip(inner, widths[1:-1], strict=True)]
            lines.append("  " + "  ".join([first.ljust(widths[0]), *inner, last]).rstrip())
        if below:
            lines.append(f"  {below}")
    lines += [f"  note: {note}" for note in report.notes]
    return "\n".join([*lines, f"  ({compiled_by(report)})"])


def html(report: Report) -> str:
    """Return a report as HTML."""
    above = "".join(_html_row(name, [line]) for name, line in summary(report))
    parts = [f"<p><strong>{markup.escape(title(report))}</strong></p>"]
    parts.append(f'<table class="dataframe"><tbody>{above}</tbody></table>')
    for head, rows, below in tables(report):
        columns = "".join(f'<th scope="col">{markup.escape(name)}</th>' for name in head)
        body = "".join(_html_row(first, rest) for first, *rest in rows)
        parts.append(
            f'<table class="dataframe"><thead><tr>{columns}</tr></thead>'
            f"<tbody>{body}</tbody></table>"
        )
        if below:
            parts.append(f"<p>{markup.escape(below)}</p>")
    if report.notes:
        noted = "".join(f"<li>{markup.escape(note)}</li>" for note in report.notes)
        parts.append(f"<ul>{noted}</ul>")
    parts.append(f"<p><small>{markup.escape(compiled_by(report))}</small></p>")
    return "".join(parts)


def _html_row(label: str, values: Sequence[str]) -> str:
    cells = "".join(f"<td>{markup.escape(value)}</td>" for value in values)
    return f'<tr><th scope="row">{markup.escape(label)}</th>{cells}</tr>'


def table(report: Report) -> pandas.DataFrame:
    """Return one row a kernel, in the order in which they run."""
    import pandas

    frame = pandas.DataFrame([_cells(kernel) for kernel in report.kernels])
    frame.attrs["notes"] = list(report.notes)
    return frame.set_index("kernel") if len(frame) else frame


def plot(report: Report, ax: Axes | None, labels: int) -> Axes:
    """Draw every kernel on the chip's roofline; see `Report.plot`."""
    roof = report.roofline()
    from roofline_helpers import plot as pictures

    drawn = [k for k in report.kernels if k.flops and k.hbm_bytes and k.roof_seconds]
    if not drawn:
        raise BadValue(f"no kernel of {report.name} has both FLOPs and HBM bytes to be drawn")
    drawn.sort(key=lambda kernel: -(kernel.roof_seconds or 0))
    works = [kernel.as_work() for kernel in drawn]
    span = [work.intensity for work in works]
    low, high = min([*span, roof.ridge]) / 4, max([*span, roof.ridge]) * 4
    labelled = {work.name: work for work in works[:labels]}
    axes = pictures.roofline(roof, labelled, intensity=(low, high), ax=ax)
    whole = sum(kernel.roof_seconds or 0 for kernel in drawn)
    axes.scatter(
        span,
        [(kernel.flops or 0) / (kernel.roof_seconds or 1) for kernel in drawn],
        s=[30 + 600 * (kernel.roof_seconds or 0) / whole for kernel in drawn],
        alpha=0.35,
        color="#595959",
        linewidths=0,
        gid="kernels",
    )
    return axes
