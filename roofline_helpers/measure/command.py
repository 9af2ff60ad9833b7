"""The command line, ``python -m roofline_helpers measure``, and the report that it prints."""

from __future__ import annotations

import argparse
import contextlib
import shlex
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from roofline_helpers import records
from roofline_helpers._checks import BadValue, RooflineError, shown, single, whole
from roofline_helpers.measure import between
from roofline_helpers.measure.case import Case
from roofline_helpers.measure.committed import beside
from roofline_helpers.measure.joining import merge
from roofline_helpers.measure.record import SCHEMA, Record, load
from roofline_helpers.measure.running import run
from roofline_helpers.measure.sample import CEILINGS
from roofline_helpers.measure.workloads import cases
from roofline_helpers.records import BadRecord
from roofline_helpers.show import si

PRETENDED = "these devices are one CPU's: results are checked, times mean nothing"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``python -m roofline_helpers measure``; return the exit status.

    Examples
    --------
    >>> main(["measure", "--quick"])  # doctest: +SKIP
    """
    options = _parsed(arguments)
    try:
        platform = _platform()
    except RooflineError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    out = Path(options.out or f"roofline-{platform}.json")
    refusal = _refused(out)
    if refusal is not None:
        print(refusal, file=sys.stderr)
        return 1
    try:
        record = _record(options, out)
        if options.collectives and platform == "cpu":
            notes = dict.fromkeys((*record.notes, PRETENDED))
            record = replace(record, notes=tuple(notes))
    except BadValue as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        kept = f"; {out} is as it was" if out.exists() else ""
        print(f"interrupted: no record is written{kept}", file=sys.stderr)
        return 130
    if not _saved(record, out):  # before anything is printed: that can fail too
        _say(report(record))
        return 1
    if options.json:
        _say(records.dumps(record.to_dict()))
        return 0
    _say(f"{report(record)}\n\nrecord: {out}")
    _draw(record, out.with_suffix(".png"))
    return 0


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="roofline", description="Roofline analysis: measure this device."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    measure = commands.add_parser("measure", help="find this device's ceilings, and place kernels")
    measure.add_argument("--out", metavar="FILE.json", help="where to write the record")
    measure.add_argument("--json", action="store_true", help="print the record, and draw nothing")
    measure.add_argument("--quick", action="store_true", help="fewer sizes, shorter samples")
    measure.add_argument(
        "--collectives", action="store_true", help="exchanges between devices, in place of kernels"
    )
    measure.add_argument("--passes", type=int, default=1, help="go through the list so many times")
    measure.add_argument(
        "--only", default="", metavar="TEXT", help="what has this in its name, and no other"
    )
    measure.add_argument(
        "--deadline", type=float, metavar="SECONDS", help="begin nothing after so many seconds"
    )
    measure.add_argument(
        "--missing", action="store_true", help="add to the record in --out what it lacks"
    )
    options = parser.parse_args(arguments)
    try:
        whole("--passes", options.passes)
        if options.deadline is not None:
            single("--deadline", options.deadline)
    except BadValue as error:
        parser.error(str(error))
    return options


def _record(options: argparse.Namespace, out: Path) -> Record:
    """Measure what was asked for; with --missing, what the record that is there lacks."""
    todo = _todo(options)
    older = load(out) if options.missing and out.exists() else None
    if older is not None:
        done = {(each.name, each.source) for each in older.samples if each.passes}
        todo = [case for case in todo if case.key not in done]
        if not todo:
            return older
    record = run(
        options.quick,
        passes=options.passes,
        command=_typed(options, out),
        chosen=todo,
        deadline=options.deadline,
    )
    return record if older is None else merge(older, record)


def _todo(options: argparse.Namespace) -> list[Case]:
    todo = between.cases(options.quick) if options.collectives else cases(options.quick)
    kept = [case for case in todo if options.only in case.name]
    if not kept:
        raise BadValue(
            f"--only {options.only}: no case's name has that in it. The first of "
            f"{len(todo)} is {shown(todo[0].name)}"
        )
    return kept


def _platform() -> str:
    try:
        import jax

        return str(jax.devices()[0].platform)
    except ImportError:
        raise RooflineError("measuring needs JAX: pip install jax") from None
    except RuntimeError as error:
        raise RooflineError(f"JAX finds no device: {str(error).splitlines()[0]}") from None


def _typed(options: argparse.Namespace, out: Path) -> str:
    """Return the command as the record keeps it: of a path, the file's name."""
    words = ["python -m roofline_helpers measure", *(["--quick"] if options.quick else [])]
    words += ["--collectives"] if options.collectives else []
    words += [f"--passes {options.passes}"] if options.passes > 1 else []
    words += [f"--only {shlex.quote(options.only)}"] if options.only else []
    words += [f"--deadline {options.deadline:g}"] if options.deadline is not None else []
    words += ["--missing"] if options.missing else []
    name = out.name.encode("utf-8", "replace").decode()  # a record holds no other text
    return " ".join([*words, *([f"--out {name}"] if options.out else [])])


def _saved(record: Record, out: Path) -> bool:
    """Write the record; where that fails, say so and keep it in a temporary folder."""
    try:
        record.save(out)
        return True
    except OSError as error:
        print(f"{out}: can't be written: {error.strerror}", file=sys.stderr)
    with contextlib.suppress(OSError):
        spare = record.save(Path(tempfile.mkdtemp(prefix="roofline-"), out.name))
        print(f"the record is kept as {spare}", file=sys.stderr)
    return False


def _draw(record: Record, picture: Path) -> None:
    """Draw the record into a file, unless someone else's picture is there."""
    if not any(each.group in CEILINGS for each in record.samples):
        _say("no picture: a roofline has ceilings and kernels, and this record has neither")
        return
    if picture.exists() and not _drawn_here(picture):
        print(f"no picture: {picture} is there, and this command didn't make it", file=sys.stderr)
        return
    try:
        from matplotlib.figure import Figure

        figure = Figure(figsize=(9, 5.5))
        record.draw(ax=figure.add_subplot(), beside=beside(record))
        figure.savefig(picture, dpi=150, bbox_inches="tight", metadata={"Source": SCHEMA})
        _say(f"picture: {picture}")
    except (RooflineError, ImportError, OSError) as error:
        print(f"no picture: {error}", file=sys.stderr)


def _drawn_here(picture: Path) -> bool:
    """Tell whether this command drew a picture: its metadata says so."""
    try:
        return b"tEXtSource\0" + SCHEMA.encode() in picture.read_bytes()
    except OSError:
        return False


def _say(text: str) -> None:
    """Print what the terminal can show; the record is safe already if it can't be printed."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        print(text.encode(encoding, "replace").decode(encoding), flush=True)
    except (OSError, ValueError) as error:
        if not isinstance(error, BrokenPipeError):  # a reader that has gone, `head`, is no error
            print(f"can't print: {error}", file=sys.stderr)
        sys.stdout = None  # what is still in its buffer would fail again at the end


def _refused(out: Path) -> str | None:
    """Return why a record can't be written to a file, or would destroy what is there."""
    if "\0" in str(out):
        return f"--out must be the name of a file, got {shown(str(out))}"
    if out.is_dir():
        return f"{out}: it is a folder, where a file is needed"
    if out.suffix != ".json":
        return f"{out}: --out must end in .json, got {shown(out.name)}"
    if not out.parent.is_dir():
        return f"{out}: there is no folder {out.parent}"
    try:
        tempfile.TemporaryFile(dir=out.parent).close()
        if out.exists():
            load(out)
    except OSError as error:
        return f"{out}: can't be written: {error.strerror}"
    except BadRecord as error:
        return f"{error}. It is left as it is: move it away, or give another --out"
    return None


def report(record: Record) -> str:
    """Return a record as text: the device, its ceilings, then every sample.

    The line of a ceiling ends with the notes of the sample that sets it.

    Examples
    --------
    >>> from roofline_helpers.measure import measured
    >>> report(measured()["h200"]).splitlines()[0]
    'NVIDIA H200 SXM (gpu, 16 host cores), JAX 0.11.2, 2026-11-21T02:05:42Z'
    """
    about = record.device
    lines = [
        f"{record.name} ({about['platform']}, {record.host['cores']} host cores), "
        f"JAX {record.software.get('jax', '?')}, {record.date}"
    ]
    ceilings = []
    with contextlib.suppress(BadRecord):
        ceiling = f"memory ceiling: {si(record.bandwidth, 'B/s')}"
        fastest = max(record.best("memory").values(), key=lambda each: each.bandwidth)
        ceilings.append((ceiling, fastest))
    published = record.chip
    for dtype, best in record.best("compute").items():
        ceiling = f"compute ceiling, {dtype}: {si(best.rate, 'FLOP/s')}"
        if published is not None and dtype in published.matrix:
            share = 100 * best.rate / float(published.peak(dtype))
            ceiling += f", {share:.1f} % of the published peak"
        ceilings.append((ceiling, best))
    for dtype, best in record.best("vector").items():
        ceilings.append((f"vector ceiling, {dtype}: {si(best.rate, 'FLOP/s')}", best))
    lines += ["; ".join([ceiling, *best.remarks]) for ceiling, best in ceilings]
    same = beside(record)
    if same is not None:
        with contextlib.suppress(BadRecord):
            lines.append(
                f"the book's record of this device, {same.date[:10]}: "
                f"{si(same.bandwidth, 'B/s')}, "
                + ", ".join(f"{si(peak, 'FLOP/s')} {dtype}" for dtype, peak in same.peaks.items())
            )
    lines += [f"note: {note}" for note in record.notes]
    lines += ["", record.table().to_string()]
    return "\n".join(lines)
