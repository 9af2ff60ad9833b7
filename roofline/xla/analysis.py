"""Compile a function for a chip, and count the compiled program."""

from __future__ import annotations

import contextlib
import inspect
import os
import re
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from roofline.storage import save, write
from roofline.xla.arrays import memory_notes
from roofline.xla.buffers import buffers_at_peak, listing
from roofline.xla.collectives import axes_of_mesh
from roofline.xla.compiler import (
    CannotCompile,
    CompilerOutput,
    DoesNotFit,
    compile_program,
    read_executable,
    text_of_refused,
)
from roofline.xla.display import compiled_by
from roofline.xla.hlo import Module, parse
from roofline.xla.ledger import kernels, with_axes
from roofline.xla.lower import (
    Arguments,
    Lowered,
    function_name,
    is_compiled,
    is_stage,
    lower,
    results_of,
)
from roofline.xla.minimum import Needed, needed_of
from roofline.xla.report import REFUSED as REFUSAL
from roofline.xla.report import Report, load_refusal, load_report
from roofline.xla.targets import (
    NoCompiler,
    Target,
    can_compile,
    chip_key,
    compiler_version,
    device_of,
    is_chip,
    jax_version,
    platform_of,
    target_of,
)
from roofline_helpers import chips
from roofline_helpers.common.checks import BadType, BadValue, mapping, name_of, shown, text, whole
from roofline_helpers.common.records import committed, files
from roofline_helpers.common.show import many, si

# --- Records used instead of the compiler --------------------------------------------------------

RECORD_TO = "ROOFLINE_RECORD_TO"
"""Environment variable: the directory to which `analyze(..., record=name)` writes its record."""

USE = "ROOFLINE_USE"
"""Environment variable: "compiler" or "record", the meaning of "auto" in calls with a record.

"whole" also compiles for calls with use="record", whose programs take minutes.
"""

RECORDS: Any = committed("roofline", "compiled")
"""The folder of the committed records."""

REFUSED = "-refused"
"""The suffix of the record of a program that doesn't fit."""


def records() -> dict[tuple[str, str], Report]:
    """Return the committed records by name and chip, without those of refused programs.

    Examples
    --------
    >>> records()["ledger-matmul", "v6e"].name
    'matmul'
    """
    found = {}
    for stem, file in files(RECORDS).items():
        name, _, chip = stem.rpartition(".")
        if not stem.endswith(REFUSED):
            found[name, chip] = load_report(file)
    return found


def find_record(name: str, chip: str) -> Report | None:
    """Return the committed record of this name for a chip; None if there is none.

    Raises
    ------
    DoesNotFit
        The record is of a program that the compiler refused.
    """
    there = files(RECORDS)
    refused = there.get(f"{name}.{chip}{REFUSED}")
    if refused is not None:
        raise DoesNotFit(load_refusal(refused))
    file = there.get(f"{name}.{chip}")
    return None if file is None else load_report(file)


@contextlib.contextmanager
def refusal_recorded(name: str, chip: str, folder: Path) -> Iterator[None]:
    """Write the record of a program that doesn't fit."""
    try:
        yield
    except DoesNotFit as error:
        save(folder / f"{name}.{chip}{REFUSED}.json", {"schema": REFUSAL, "message": str(error)})
        raise


class RecordUsed(UserWarning):
    """A committed record is used instead of the compiler.

    Examples
    --------
    >>> issubclass(RecordUsed, UserWarning)
    True
    """


class RecordDiffers(UserWarning):
    """The compiler here makes another program than the one in the committed record.

    Examples
    --------
    >>> issubclass(RecordDiffers, UserWarning)
    True
    """


def analyze(
    fn: Any,
    *args: Any,
    chip: Any = None,
    record: str | None = None,
    use: str = "auto",
    topology: str | None = None,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Sequence[str] | None = None,
    donate_argnums: int | Sequence[int] | None = None,
    turns: Mapping[str, int] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> Report:
    """Compile a JAX function for a chip and return its FLOPs, bytes and kernels.

    Parameters
    ----------
    fn : callable
        A plain function, or a result of `jax.jit`, `equinox.filter_jit` or `flax.nnx.jit`; or of
        its `trace`, `lower` or `lower(...).compile()`, then without arguments.
    *args, **kwargs
        Its arguments: arrays, `jax.ShapeDtypeStruct` objects, pytrees of them, modules. If they are
        sharded over a mesh, even an abstract one, the report is for one of its devices.
    chip : str, Chip or jax.Device, optional
        "v4", "v5e", "v5p", "v6e" or "v7x", or a slice by its cloud's name, such as "v6e-8"; by
        default JAX's device here, even a CPU.
    record : str, optional
        Name of the committed record that stands in for a missing compiler, with a warning.
    use : {"auto", "compiler", "record"}
        "auto" compiles if possible; "record" is for programs that take minutes. ROOFLINE_USE in the
        environment overrides it ("whole" compiles those too); ROOFLINE_RECORD_TO names a directory
        for new records.
    topology : str, optional
        Layout of the chips, "4x4x4", or "4*16x16" for four slices, which the mesh's first axis
        crosses; by default the smallest that holds the mesh.
    static_argnums, static_argnames, donate_argnums : optional
        As for `jax.jit`, of a function that isn't jitted.
    turns : mapping of str to int, optional
        Trip counts that the program doesn't state, by the loop's name or line ("model.py:30").
    name : str, optional
        The function's name in the report.

    Returns
    -------
    Report

    Raises
    ------
    UnknownName, BadType, BadValue
        No such chip; an option outside what is allowed, or also an argument of the function.
    NoCompiler, CannotCompile, DoesNotFit
        No compiler for this chip here, or it refuses the program; it needs too much memory, and
        the message says what fills it.
    CannotTrace
        JAX can't trace the function with these arguments.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> x = jax.ShapeDtypeStruct((2048, 2048), jnp.bfloat16)
    >>> report = analyze(jnp.matmul, x, x, chip="v6e")  # doctest: +SKIP
    >>> report.flops, report.hbm_bytes, report.bound  # doctest: +SKIP
    (17179869184.0, 25165824, 'compute')
    """
    own = {key: value for key, value in locals().items() if key not in ("fn", "args", "kwargs")}
    check_options(analyze, fn, args, own)
    setting = os.environ.get(USE, "") if record is not None else ""
    if setting and (use == "auto" or setting == "whole"):
        use = "compiler" if setting == "whole" else setting
    use = name_of("way to analyse", use, ["auto", "compiler", "record"])
    target = target_of(chip, topology)
    wanted = None if target is None else target.chip
    if not (callable(fn) or is_stage(fn)):
        raise BadType(f"the function must be callable, got {fn!r} ({type(fn).__name__})")
    if record is not None and not re.fullmatch(r"[\w\-]+", record):
        raise BadValue(f"a record's name has letters, digits, '-' and '_', got {record!r}")
    stored = _recorded(wanted, record, use)
    if stored is not None:
        return stored if use == "record" else use_record(stored, record, str(can_compile(wanted)))
    arguments, jit, trips = Arguments(args, kwargs), jit_options(own), turns_of(turns)

    def compiled() -> Report:
        return report_of(fn, arguments, target, jit, trips, name)[0]

    folder = Path(os.environ.get(RECORD_TO, "")) if os.environ.get(RECORD_TO) else None
    if record is not None and folder is not None:
        with refusal_recorded(record, wanted.key if wanted else "", folder):
            report = compiled()
        write(folder / f"{record}.{report.target}.json", report.to_json())
        return report
    try:
        report = compiled()
    except (CannotCompile, NoCompiler) as error:
        stored = find_record(record, wanted.key) if record and wanted and use == "auto" else None
        if stored is None:
            raise
        first, *more = str(error).splitlines()
        advice = [] if isinstance(error, DoesNotFit) else more[-1:]
        return use_record(stored, record, "; ".join([first, *advice]))
    if record is not None and wanted is not None and use == "auto":
        warn_of_changes(report, record)
    return report


def jit_options(own: Mapping[str, Any]) -> dict[str, Any]:
    """Return those options of `analyze` or `explain` that are for `jax.jit`."""
    names = ("static_argnums", "static_argnames", "donate_argnums")
    return {option: own[option] for option in names if own[option] is not None}


def turns_of(given: Any) -> dict[str, int]:
    """Return the stated trip counts of loops, checked."""
    return {key: whole(f"turns of {key}", n) for key, n in mapping("turns", given or {}).items()}


def check_options(
    entry: Callable[..., Any], fn: Any, args: tuple[Any, ...], own: Mapping[str, Any]
) -> None:
    """Raise BadType if an option of `analyze` or `explain` may be an argument of the function.

    Also if a name isn't a text.
    """
    bound = getattr(inspect.unwrap(fn), "keywords", {})  # of a functools.partial
    theirs: set[str] = set()
    # without a signature, or with too many arguments, JAX raises the error
    with contextlib.suppress(TypeError, ValueError):
        signature = inspect.signature(fn)
        theirs = signature.parameters.keys() - {*bound, *signature.bind_partial(*args).arguments}
    defaults = inspect.signature(entry).parameters
    for key, value in own.items():
        if key in theirs and value is not defaults[key].default:
            raise BadType(
                f"{key}={shown(value)} is an option of {entry.__name__}, and the function takes "
                f"{key!r} too: bind the function's with functools.partial(fn, {key}=...)"
            )
    for option in ("name", "record", "topology"):
        if own.get(option) is not None:
            text(option, own[option])


def _recorded(chip: chips.Chip | None, record: str | None, use: str) -> Report | None:
    """Return the record to use, or None to compile; raise if neither is possible."""
    missing = can_compile(chip) if use != "record" else "the record was asked for"
    if missing is None:
        return None
    if use == "compiler":
        raise NoCompiler(missing)
    there = f", and there is no record {record!r} of it" if record else ""
    if chip is None:
        raise NoCompiler(f"{missing}{there}")
    stored = find_record(record, chip.key) if record is not None else None
    if stored is None:
        raise NoCompiler(f"{missing}{there}")
    return stored


def use_record(stored: Report, record: str | None, why: str) -> Report:
    """Return a record that is used instead of the compiler; a warning says so."""
    shown_for = f"showing the record {record!r} for {stored.target}"
    message = f"{shown_for}, compiled by {compiled_by(stored)}: {why}"
    warnings.warn(message, RecordUsed, stacklevel=3)
    return stored


def warn_of_changes(report: Report, record: str) -> None:
    """Warn if a program has other figures than its record, since a text may describe that one."""
    with contextlib.suppress(DoesNotFit):  # the record of a refusal has no figures
        stored = find_record(record, report.target)
        if stored is not None and figures(stored) != figures(report):
            message = f"{record!r} for {report.target}: {figures(report)}, as "
            message += f"compiled here by {compiled_by(report)}; the text was written for the "
            message += f"record by {compiled_by(stored)}: {figures(stored)}"
            warnings.warn(message, RecordDiffers, stacklevel=3)


def figures(report: Report) -> str:
    """Return what most depends on the compiler's version: kernels, traffic, time."""
    said = [many(len(report.kernels), "kernel"), f"{si(report.hbm_bytes, 'B')} of HBM traffic"]
    if report.xla_bytes is not None:
        said.append(f"{si(report.xla_bytes, 'B')} by cost_analysis")
    if report.time_at_roof is not None:
        said.append(f"at least {si(report.time_at_roof, 's')}")
    return ", ".join(said)


def report_of(
    fn: Any,
    arguments: Arguments,
    target: Target | None,
    jit: Mapping[str, Any],
    turns: Mapping[str, int] | None = None,
    name: str | None = None,
) -> tuple[Report, Module]:
    """Compile a function for a target (None: the device here); return report and program."""
    import jax

    started = time.perf_counter()
    name = name or function_name(fn)
    if is_compiled(fn):
        lowered, program = _executable_given(fn, arguments, target, name)
        mesh, devices, written = {}, 0, ""
    else:
        lowered = lower(fn, arguments, jit, target, name)
        program = _fitting(lowered)
        mesh, devices, written = lowered.mesh, lowered.partitions, lowered.written
    platform, axes = lowered.platform, axes_of_mesh(mesh)
    module = parse(program.text)
    ledger = kernels(module, platform, turns=turns, calls=lowered.calls)
    buffers = buffers_at_peak(module, platform)
    seconds = time.perf_counter() - started
    report = Report(
        name=name,
        target=lowered.target,
        platform=platform,
        arguments=arguments.described(),
        rows=tuple(with_axes(row, axes) for row in ledger.rows),
        notes=(
            *futile_notes(lowered),
            *captured_notes(lowered, seconds),
            *memory_notes(module, buffers),
            *ledger.notes,
            *_platform_notes(lowered),
        ),
        xla=program.costs,
        jax_version=jax.__version__,
        compiler=compiler_version(platform),
        devices=devices or module.partitions,
        mesh=mesh,
        topology=lowered.topology,
        memory=program.memory,
        buffers=buffers,
        requested_flops=lowered.requested,
        needed=None if is_compiled(fn) else needed_by(lowered, turns),
        calls=lowered.calls,
        text=program.text,
        written=written,
    )
    return report, module


def needed_by(lowered: Lowered, turns: Mapping[str, int] | None = None) -> Needed:
    """Return what a program's result needs at least; what can't be read is refused."""
    try:
        return needed_of(lowered, turns)
    except Exception as error:  # whatever a program holds, its report stands without this number
        return Needed(0.0, refused=f"the program as written can't be read: {error}")


def _fitting(lowered: Lowered) -> CompilerOutput:
    """Compile a program; if it needs too much of a TPU's HBM, say what fills it."""
    try:
        return compile_program(lowered)
    except DoesNotFit as error:
        text = text_of_refused(lowered) if lowered.devices and error.space == "hbm" else ""
        if not text:
            raise
        alive = buffers_at_peak(parse(text), lowered.platform)
        raise DoesNotFit(f"{error}\n{listing(alive)}", alive) from error


def _executable_given(
    fn: Any, arguments: Arguments, target: Target | None, name: str
) -> tuple[Lowered, CompilerOutput]:
    """Return an executable's target, and its contents."""
    executable = getattr(fn, "compiled", fn)  # of Equinox and of NNX
    program, device = read_executable(executable), device_of(executable)
    if target is not None and not is_chip(device, target.chip):
        raise BadValue(
            f"the executable was compiled for {chip_key(device)}, and chip= is "
            f"{target.chip.key}: leave chip= out, or give the function and its arguments"
        )
    return Lowered(fn, arguments, name, platform_of(device), chip_key(device)), program


def _platform_notes(lowered: Lowered) -> list[str]:
    notes = []
    if lowered.devices and jax_version() < (0, 8):
        notes.append("this JAX's optimal_seconds does not depend on the chip")
    if lowered.platform == "cpu":
        notes.append("a CPU has no separate HBM: bytes are those that cross kernels, caches or not")
    return notes


MOST_UNUSED = 0.5
"""Share of matmul FLOPs that may be unused without a note. A gradient without its value doesn't
need the last forward matmul, which is half of a program of one layer."""


NOT_REUSED = "donated, but not reused: "
"""How a note on an argument begins that is donated in vain."""


def _unused_donations(lowered: Lowered) -> list[str]:
    """Return notes on donated arguments for which no result has their shape and type."""
    import jax

    infos = jax.tree.leaves(lowered.stage.args_info, is_leaf=lambda info: hasattr(info, "donated"))
    if not any(info.donated for info in infos):
        return []
    left = Counter((tuple(info.shape), info.dtype) for info in results_of(lowered.stage))
    notes = []
    for number, info in enumerate(infos):
        kind = tuple(info.shape), info.dtype
        left[kind] -= info.donated
        if info.donated and left[kind] < 0:
            called = f"argument {number}, {info.dtype}[{','.join(map(str, info.shape))}]"
            notes.append(f"{NOT_REUSED}{called}: no result that is left has its shape and type")
    return notes


def captured_notes(lowered: Lowered, seconds: float) -> list[str]:
    """Return a note on the arrays that a function closes over; compiling took so many seconds."""
    arrays = lowered.captured
    if not arrays:
        return []
    listed = [f"{array.name or 'an array'}, {array.type}" for array in arrays[:LISTED]]
    listed += [f"{len(arrays) - LISTED} more"] if len(arrays) > LISTED else []
    size = si(sum(array.bytes for array in arrays), "B")
    are, copies, them = ("is", "a constant", "it as an argument")
    if len(arrays) > 1:
        are, copies, them = ("are", "constants", "them as arguments")
    return [
        f"{' and '.join(listed)} ({size}) {are} closed over, and not passed: {copies} of the "
        f"program, which holds a copy. Tracing and compiling took {si(seconds, 's')}. Pass {them}"
    ]


LISTED = 3
"""Captured arrays that are listed."""


def futile_notes(lowered: Lowered) -> tuple[str, ...]:
    """Return notes on what a function asks for in vain: donations, and most of its matmul FLOPs."""
    donated = _unused_donations(lowered)
    if lowered.unused <= MOST_UNUSED or not lowered.requested:
        return tuple(donated)
    asked = si(lowered.requested, "FLOP")
    return (
        *donated,
        f"{lowered.unused:.0%} of the {asked} of matmuls in this function are NOT in the compiled "
        "program: no returned value needs them, so the compiler leaves them out. Return the values "
        "that they compute (gradients, updated parameters). Whatever a function only writes into "
        "its arguments is lost under jax.jit",
    )
