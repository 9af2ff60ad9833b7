"""The command line: ``roofline …``, which is ``python -m roofline …``.

::

    roofline analyze model.py:step --chip v6e    what XLA makes of a function, kernel by kernel
    roofline explain model.py:step               where its time goes on this device
    roofline explain FOLDER                      the same from a profile that JAX wrote there
    roofline measure --out mine.json             this device's ceilings
    roofline chip v6e h200                       published figures, side by side
    roofline compare before.json after.json      what changed between two reports
    roofline compare FOLDER FOLDER               what became slower, kernel by kernel
    roofline predict steps.toml                  seconds of training and decode steps in a file
    roofline serve llama-3-70b --chip h200 --chips 8 --concurrency 64 --inputs 1024 --outputs 1024
                                                 a service: does it fit, how fast for how many
    roofline mfu llama-3-8b --chip "NVIDIA H100 80GB HBM3" --tokens-per-second 12000 --seq 8192
                                                 what a training run uses of its chips
    roofline doctor                              what this machine can do, and what to install

It exits with 0; with 1 where something can't be done or, of `compare`, where something changed;
with 2 for a wrong command line, or a file that compare can't read. ``--json`` prints the result for
programs. JAX is imported by the commands that need it.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from roofline import terminal
from roofline.terminal import Grid, show
from roofline_helpers import __version__

if TYPE_CHECKING:
    from roofline.measure.workloads import Case
    from roofline_helpers import chips

__all__ = ["main"]

SCRIPT = "SCRIPT.py:FUNCTION"
TURNS = "how often a loop turns whose trip count is unknown, by its name or line: model.py:12=30"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status.

    Parameters
    ----------
    arguments : sequence of str, optional
        What follows ``roofline``; by default what was typed.

    Examples
    --------
    >>> main(["chip", "v5q"])
    2
    """
    options = _parser().parse_args(arguments)  # before anything is imported: help is quick
    options.words = sys.argv[1:] if arguments is None else arguments
    if sys.stdout is None:
        print(f"{options.command}: the output is closed: nothing can be printed", file=sys.stderr)
        return 1
    from roofline_helpers.common.checks import BadType, BadValue, RooflineError, UnknownName

    ascii_only = terminal.spell_out()
    records: list[str] = []
    options.record = records.append
    try:
        with terminal.to_stderr() if options.json else contextlib.nullcontext():
            status = int(options.run(options))
        for text in records:
            print(_escaped(text) if ascii_only else text)
        sys.stdout.flush()
        if options.json and arguments is None:  # what the script prints when Python ends
            atexit.register(os.dup2, 2, 1)
        return status
    except (RooflineError, OSError) as error:
        if _pipe_closed(error):  # whoever reads, such as head, has enough; Python flushes once more
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        print(f"{options.command}: {error}", file=sys.stderr)
        wrong = isinstance(error, BadValue | BadType | UnknownName)
        return 2 if wrong or options.command == "compare" else 1
    except KeyboardInterrupt:
        print(f"{options.command}: interrupted, nothing is written", file=sys.stderr)
        return 130


def _pipe_closed(error: BaseException | None) -> bool:
    """Return whether an error, or one behind it, is that nobody reads the output."""
    while error is not None and not isinstance(error, BrokenPipeError):
        error = error.__cause__ or error.__context__
    return error is not None


def _escaped(text: str) -> str:
    """Return JSON in ASCII."""
    return re.sub(r"[^\x00-\x7f]", lambda letter: json.dumps(letter[0])[1:-1], text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="roofline",
        description="Roofline analysis: predict, compile, measure.",
        epilog="Exit status: 0; 1 where it can't be done, or where compare finds a change; "
        "2 for a wrong command line, or a file that compare can't read.",
    )
    parser.add_argument("--version", action="version", version=f"roofline_helpers {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, run: Any, text: str) -> Any:
        described = text[0].upper() + text[1:] + "."
        parsed = commands.add_parser(name, help=text, description=described)
        parsed.set_defaults(run=run)
        parsed.add_argument("--json", action="store_true", help="print the result for programs")
        return parsed.add_argument

    for name, run, text in (
        ("analyze", _analyze, "what XLA makes of a function, for any TPU"),
        ("explain", _explain, "where a function's time goes on this device, and why"),
    ):
        add = command(name, run, text)
        described = "a function without arguments: return f, (x, y)"
        more = "; or the folder of a profile" if name == "explain" else ""
        add("program", metavar=SCRIPT, help=described + more)
        add("--chip", help="a TPU that need not be here, or a slice of them such as v6e-8")
        add("--topology", help="layout of the chips, for instance 4x4x4")
        add("--turns", metavar="LOOP=N", action="append", default=[], help=TURNS)
        add("--out", metavar="FILE", help="write FILE.html, FILE.md or FILE.json")
        add("--limit", type=float, metavar="S", help="end if the compiler takes so many seconds")
        if name == "analyze":
            add("--by", help="list groups of kernels: scope, function, line or role")
            continue
        add("--seconds", type=float, default=1.0, help="about how long to time it")
        add("--as-it-is", action="store_true", help="call it without jax.jit")
        add("--trace", metavar="FOLDER", help="keep the profiler's trace")
    add = command("measure", _measure, "find this device's ceilings, and place kernels")
    add("--out", metavar="FILE.json", help="where to write the record")
    add("--picture", metavar="FILE.png", help="also draw it")
    add("--quick", action="store_true", help="fewer sizes, shorter samples")
    add("--collectives", action="store_true", help="exchanges between devices, not kernels")
    add("--passes", type=int, default=1, help="go through the list so many times")
    add("--only", default="", metavar="TEXT", help="what has this in its name, and no other")
    add = command("chip", _chip, "published figures of chips, side by side")
    add("names", metavar="CHIP", nargs="*", help="v6e, h200, …; without, all names")
    add = command("compare", _compare, "what changed: two reports, explanations or profiles")
    add("before", metavar="BEFORE", help="of analyze or explain --out, or the folder of a profile")
    add("after", metavar="AFTER", help="the same of a later version")
    add = command("predict", _predict, "seconds of the training and decode steps in a file")
    add("file", metavar="FILE", help="TOML, as roofline.validation.predict says")
    add = command("serve", _serve, "what a service does with so many requests at once")
    add("model", metavar="MODEL", help="a model's name, or a config.json")
    add("--chip", required=True, help="of an engine: h200, v5e, …")
    for name, usual, text in (
        ("chips", None, "of an engine; by default 1, or with --for the best of 1, 2, 4 and 8"),
        ("data", 1, "parts of an engine with their own attention"),
        ("readers", 0, "further engines that read prompts"),
        ("workers", 1, "engines that decode"),
        ("concurrency", 64, "requests at once"),
        ("inputs", 1024, "tokens of a prompt"),
        ("outputs", 1024, "tokens of an answer"),
        ("budget", None, "tokens of a prompt in one step"),
        ("polled", None, "steps between two looks for new requests"),
        ("rounds", None, "requests of each user, if all users begin at once as in a benchmark"),
        ("draft-tokens", None, "tokens that a draft proposes"),
    ):
        add(f"--{name}", type=int, default=usual, metavar="N", help=text)
    for name, unit, text in (
        ("cached", "SHARE", "of the inputs that a prefix cache has"),
        ("acceptance", "SHARE", "of a draft's tokens that are accepted"),
        ("reserve", "SHARE", "of the memory that is the runtime's"),
        ("rate", "BYTE/S", "of a chip, of caches between engines"),
    ):
        add(f"--{name}", type=float, metavar=unit, help=text)
    add("--draft", metavar="MODEL", help="of speculative decoding; own: multi-token prediction")
    for name in ("weights", "experts", "projections", "cache", "activations"):
        add(f"--{name}", metavar="TYPE", help=f"data type of {name}")
    asked = '"200 requests/s, time per token 20 ms": how many chips that needs'
    add("--for", dest="target", metavar="TEXT", help=asked)
    add = command("mfu", _mfu, "what a training run uses of its chips, and whether that is usual")
    add("model", metavar="MODEL", help="a model's name, or a config.json")
    add("--chip", required=True, help="as JAX, PyTorch or nvidia-smi print it, or h200, v5e, …")
    add("--tokens-per-second", type=float, required=True, metavar="N", help="of all --chips")
    add("--chips", type=int, default=1, metavar="N", help="that train together")
    add("--seq", type=int, metavar="N", help="tokens of a sequence")
    add("--dtype", metavar="TYPE", help="of the matmuls: bf16, fp8, …")
    add("--recompute", default="none", metavar="WHAT", help="none, attention or full")
    command("doctor", _doctor, "what this machine can do, and what to install")
    return parser


# --- a script's function --------------------------------------------------------------------------


def load_call(program: str) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Return the callable and the two sorts of arguments that ``script.py:function`` makes.

    Without a function's name it is `main`.
    """
    from roofline_helpers.common.checks import BadType, BadValue, RooflineError, name_of, shown

    file, _, name = program.rpartition(":") if ":" in program else (program, "", "main")
    path = Path(file)
    if not path.is_file():
        raise BadValue(f"{file}: there is no such file. Give {SCRIPT}")
    spec = importlib.util.spec_from_file_location(f"explained_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise BadValue(f"{file} is not a Python file, which ends in .py. Give {SCRIPT}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(path.absolute().parent))
    try:
        spec.loader.exec_module(module)
        functions = {key: value for key, value in vars(module).items() if callable(value)}
        if ":" not in program and name not in functions:
            own = [key for key, value in functions.items() if value.__module__ == spec.name]
            listed = " or ".join(f"{path.name}:{key}" for key in own) or "it has none"
            raise BadValue(f"{path.name} has no function {name}: name one, {listed}")
        returned = functions[name_of(f"function of {path.name}", name, functions)]()
    except RooflineError:
        raise
    except Exception as error:
        raise RooflineError(f"{program} failed: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(str(path.absolute().parent))
    match returned:
        case (fn, args) if callable(fn):
            return fn, args if isinstance(args, tuple) else (args,), {}
        case (fn, tuple(args), dict(kwargs)) if callable(fn):
            return fn, args, kwargs
    raise BadType(
        f"{program} must return what to call and its arguments, f, (x, y) or f, (x, y), "
        f"{{'k': 3}}; got {shown(returned)}"
    )


def _asked(options: argparse.Namespace) -> dict[str, Any]:
    """Return the options that `analyze` and `explain` share; check what can be wrong of them."""
    from roofline_helpers.common.checks import BadValue, single

    limit = options.limit
    terminal.LIMIT.set(None if limit is None else single("--limit", limit))
    turns = {}
    for stated in options.turns:
        loop, _, n = stated.rpartition("=")
        if not loop or not n.isdecimal():
            raise BadValue(f"--turns must be LOOP=N, for instance model.py:12=30, got {stated}")
        turns[loop] = int(n)
    return {"chip": options.chip, "topology": options.topology, "turns": turns}


def _out(path: str | None, *endings: str) -> Path | None:
    """Return where to write, before anything runs; raise where nothing can be written."""
    from roofline_helpers.common.checks import BadValue, shown

    if path is None:
        return None
    out = Path(path)
    if out.suffix not in endings or "\0" in path:
        raise BadValue(f"--out must end in {' or '.join(endings)}, got {shown(out.name)}")
    if not out.absolute().parent.is_dir():
        raise BadValue(f"--out: there is no folder {out.absolute().parent}")
    return out


def _analyze(options: argparse.Namespace) -> int:
    from roofline.diagnosis import analyze
    from roofline.xla import display
    from roofline_helpers.common.checks import name_of

    by, out = options.by, _out(options.out, *ENDINGS)
    if by is not None:
        by = name_of("--by", by, ("scope", "function", "line", "role"))
    asked = _asked(options)
    fn, args, kwargs = load_call(options.program)
    report = analyze(fn, *args, **asked, **kwargs)
    return _told(options, report, display.parts(report, by), out)


ENDINGS = (".html", ".md", ".json")
"""Files that a report can be written to."""


def _told(options: argparse.Namespace, result: Any, parts: Sequence[str | Grid], out: Any) -> int:
    """Print a report, or its record, and write it."""
    if options.json:
        options.record(result.to_json().rstrip())
    else:
        show(*parts)
    if out is not None:
        print(f"written: {result.save(out)}", file=sys.stderr if options.json else None)
    return 0


def _explain(options: argparse.Namespace) -> int:
    from roofline import xla
    from roofline.diagnosis import display, explain
    from roofline_helpers.common.checks import BadValue

    out, asked = _out(options.out, *ENDINGS), _asked(options)
    call: tuple[Any, tuple[Any, ...], dict[str, Any]] = Path(options.program), (), {}
    if call[0].suffix == ".py" or ":" in options.program:
        call = load_call(options.program)
    elif not call[0].exists():
        raise BadValue(f"{options.program}: no such file or folder. Give {SCRIPT}, or a profile's")
    fn, args, kwargs = call
    own = {name: getattr(options, name) for name in ("seconds", "trace")}
    why = explain(fn, *args, jit=not options.as_it_is, **asked, **own, **kwargs)
    compiled = isinstance(why, xla.Report)
    return _told(options, why, xla.display.parts(why) if compiled else display.parts(why), out)


def _compare(options: argparse.Namespace) -> int:
    from roofline import diagnosis
    from roofline_helpers.common.checks import BadValue

    before, after = (_compared(path) for path in (options.before, options.after))
    if type(before) is not type(after):
        raise BadValue(
            f"{options.before} and {options.after}: one tells what was compiled, the other what "
            "ran. Two reports of analyze are compared, or two explanations or profiles"
        )
    if isinstance(before, diagnosis.Explanation):
        upgrade = diagnosis.compare(before, after)
        if options.json:
            _json(options, upgrade.data())
        else:
            show(*upgrade.parts())
        return int(bool(upgrade))
    difference = before.diff(after)
    if options.json:
        _json(options, {**asdict(difference), "same_compiler": difference.same_compiler})
    else:
        show(difference.describe())
    return int(bool(difference))


def _compared(path: str) -> Any:
    """Return the explanation or the report that a file or the folder of a profile holds."""
    from roofline import diagnosis
    from roofline.diagnosis.foreign import kind_of
    from roofline.xla.report import load_report

    where = Path(path)
    kind = kind_of(where) if where.is_file() else None
    if kind is not None and kind.called == "a record of explain":
        return diagnosis.load_explanation(where)
    if where.is_dir() or where.suffix == ".pb" or (kind and "this package" not in kind.called):
        return diagnosis.explain(where)
    return load_report(where)


def _predict(options: argparse.Namespace) -> int:
    from roofline.validation import predict
    from roofline_helpers.common.show import readable

    found = predict(options.file)
    refused = found["refused"].dropna()
    if options.json:
        options.record(found.to_json(orient="index", indent=1))
        return 1 if len(refused) else 0

    types = found.pop("types").dropna()
    found["error, %"] = 100 * found.pop("error").astype(float)
    print(readable(found.drop(columns="refused").rename_axis("step")).to_string())
    print("low to high: where eight of ten published steps of that kind would lie")
    print("by: laws of measured kernels, or the roof at reached ceilings")
    for row, said in types.items():
        print(f"{row}: {said}")
    for row, why in refused.items():
        print(f"{row} is refused: {why}", file=sys.stderr)
    return 1 if len(refused) else 0


def _serve(options: argparse.Namespace) -> int:
    from roofline.serving import service
    from roofline_helpers.common.checks import whole

    others = {"command", "run", "record", "words", "json", "model", "chip", "target"}
    stated = {name: value for name, value in vars(options).items() if name not in others}
    asked = {name: value for name, value in stated.items() if value is not None}
    most = whole("--concurrency", asked.pop("concurrency"))
    target = None if options.target is None else service.targets(options.target)
    doubled = [2**n for n in range(most.bit_length()) if 2**n < most]
    answer = service.answer(options.model, options.chip, [*doubled, most], target, **asked)
    if options.json:
        _json(options, answer.data())
    else:
        show(*answer.parts())
    return 0 if answer.loads else 1


def _mfu(options: argparse.Namespace) -> int:
    from roofline import validation

    names = ("model", "chip", "tokens_per_second", "chips", "seq", "dtype", "recompute")
    run = validation.mfu(**{name: getattr(options, name) for name in names})
    if options.json:
        _json(options, run.data())
    else:
        show(*run.parts())
    return int(not run.possible)


# --- this machine ---------------------------------------------------------------------------------


def _measure(options: argparse.Namespace) -> int:
    from roofline import measure, storage
    from roofline.measure.report import data_of, report
    from roofline.xla.targets import first_device
    from roofline_helpers.common.checks import RooflineError, needed, whole

    whole("--passes", options.passes)
    needed("measuring", "jax")
    try:
        kind = str(first_device().platform)
    except RuntimeError as error:
        raise RooflineError(f"JAX finds no device: {str(error).splitlines()[0]}") from None
    out = _out(options.out or f"roofline-{kind}.json", ".json")
    assert out is not None
    if out.exists():
        measure.load(out)  # what isn't a record isn't overwritten
    record = measure.run(
        options.quick,
        passes=options.passes,
        command=_typed(options),
        chosen=_cases(options),
    )
    if options.collectives and kind == "cpu":
        pretended = "these devices are one CPU's: results are checked, times mean nothing"
        record = replace(record, notes=(*record.notes, pretended))
    measure.save(record, out)
    if options.json:
        options.record(storage.dumps(data_of(record)).rstrip())
    else:
        print(f"{report(record)}\n\nrecord: {out}")
    if options.picture:
        from matplotlib.figure import Figure

        figure = Figure(figsize=(9, 5.5))
        measure.draw(record, ax=figure.add_subplot(), beside=measure.same_device(record))
        figure.savefig(options.picture, dpi=150, bbox_inches="tight")
    return 0


def _typed(options: argparse.Namespace) -> str:
    """Return the command as a record names it, without folders."""
    return shlex.join(["roofline", *(Path(word).name for word in options.words)])


def _cases(options: argparse.Namespace) -> list[Case]:
    from roofline import measure
    from roofline.measure.multi_device import multi_device_cases
    from roofline_helpers.common.checks import BadValue, shown

    listed = multi_device_cases if options.collectives else measure.workloads.cases
    todo = listed(options.quick)
    kept = [case for case in todo if options.only in case.name]
    if not kept:
        raise BadValue(
            f"--only {options.only}: no case's name has that in it. The first of "
            f"{len(todo)} is {shown(todo[0].name)}"
        )
    return kept


class Ability(NamedTuple):
    """Something that a machine can do or not: what it has for it, or what is missing."""

    name: str
    can: bool
    text: str


def _doctor(options: argparse.Namespace) -> int:
    abilities = list(_abilities())
    if options.json:
        _json(options, [ability._asdict() for ability in abilities])
    else:
        rows = [
            [ability.name, "yes" if ability.can else "no", ability.text] for ability in abilities
        ]
        show(Grid(["", "", ""], rows, right=False))
    return (
        0 if any(ability.can for ability in abilities if ability.name.startswith("compile")) else 1
    )


def _abilities() -> Iterator[Ability]:
    """Yield what this machine can do, one thing after another."""
    own = f"roofline_helpers {__version__}, Python {platform.python_version()}"
    yield Ability("count by hand", True, f"{own}, {platform.system()} {platform.machine()}")
    yield _has("draw", "matplotlib", "pip install matplotlib")
    runs = _has("run JAX", "jax", "pip install jax, on Linux x86-64 'jax[tpu]'")
    yield runs
    if not runs.can:
        yield Ability("compile", False, "needs JAX")
        return
    import jax

    from roofline.diagnosis import explain
    from roofline.measure import time
    from roofline.xla import TOPOLOGIES, analyze, can_compile, targets
    from roofline_helpers.roofline import Roofline

    plain, kernel, shape = _programs()
    for key in TOPOLOGIES:
        for name, fn in {f"compile for {key}": plain, f"compile Pallas for {key}": kernel}.items():
            missing = can_compile(key) or _refusal(analyze, fn, shape, chip=key)
            text = missing or f"{targets.compiler_version('tpu')}, no TPU needed"
            yield Ability(name, not missing, text)
            if missing:
                break  # without the first, not the second either
    try:
        device = targets.first_device()
    except RuntimeError as error:
        yield Ability("run here", False, str(error).splitlines()[0])
        return
    chip = targets.chip_of(device)
    known = f"the chip table has it as {chip.key}" if chip else "it is not in the chip table"
    here = f"{device.device_kind}: {known}; roofline measure finds its ceilings"
    zeros = jax.numpy.zeros(shape.shape, shape.dtype)
    missing = _refusal(time, plain, zeros, seconds=0.01)
    yield Ability("compile here, and measure", not missing, missing or here)
    anything = Roofline(1e12, {"hbm": 1e11})  # so that no ceiling is measured
    missing = _refusal(explain, plain, zeros, ceilings=anything, seconds=0.01, progress=False)
    profiled = "the profiler of JAX gives each kernel's time on this device"
    yield Ability("explain", not missing, missing or profiled)


def _programs() -> tuple[Any, Any, Any]:
    """Return a function and a Pallas kernel of one argument, and its shape."""
    import jax
    import jax.numpy as jnp
    from jax.experimental import pallas

    def double(x: Any, y: Any) -> None:
        y[...] = 2 * x[...]

    shape = jax.ShapeDtypeStruct((256, 256), jnp.float32)
    return jnp.sin, pallas.pallas_call(double, out_shape=shape), shape


def _refusal(call: Any, *args: Any, **options: Any) -> str:
    """Return why a call fails, its first line and its advice; nothing if it works."""
    from roofline_helpers.common.checks import RooflineError

    try:
        call(*args, **options)
    except (RooflineError, ImportError) as error:
        first, *more = str(error).splitlines()
        return "; ".join([first, *more[-1:]])
    return ""


def _has(name: str, module: str, install: str) -> Ability:
    if importlib.util.find_spec(module) is None:
        return Ability(name, False, f"{module} is not installed: {install}")
    return Ability(name, True, f"{module} {importlib.metadata.version(module)}")


# --- chips ----------------------------------------------------------------------------------------


def _chip(options: argparse.Namespace) -> int:
    from roofline_helpers import chips
    from roofline_helpers.common.show import significant

    if not options.names:
        known = chips.all_chips()
        if options.json:
            _json(options, [chip.key for chip in known])
        else:
            rows = [[chip.key, chip.name, str(chip.year), chip.vendor] for chip in known]
            show(Grid(["", "chip", "year", "vendor"], rows, right=False))
        return 0
    listed = [chips.chip(name) for name in options.names]
    if options.json:
        _json(options, {chip.key: _data(chip) for chip in listed})
        return 0

    def printed(chip: Any) -> dict[str, str]:
        return {path: str(figure) for path, figure in chip.figures().items()}

    figures = [printed(chip) for chip in listed]
    paths = dict.fromkeys(path for column in figures for path in column)
    kinds = list(dict.fromkeys(path.partition(".")[0] for path in paths))
    rows = [
        [path, *(column.get(path, "–") for column in figures)]
        for path in sorted(paths, key=lambda path: kinds.index(path.partition(".")[0]))
    ]
    ridges = [significant(chip.roofline(chip.half).ridge) for chip in listed]
    rows.append(["ridge, 16 bit", *(f"{ridge} FLOP/byte" for ridge in ridges)])
    rows.append(["year", *(str(chip.year) for chip in listed)])
    show(Grid(["", *(chip.name for chip in listed)], rows, right=False))
    print("\npeaks are dense; what each figure's source is: roofline chip --json")
    return 0


def _data(chip: chips.Chip) -> dict[str, Any]:
    from msgspec import to_builtins

    own = {name: getattr(chip, name) for name in ("name", "vendor", "year")}
    return {**own, "figures": to_builtins(chip.figures())}


def _json(options: argparse.Namespace, data: Any) -> None:
    options.record(json.dumps(data, indent=1, ensure_ascii=False))
