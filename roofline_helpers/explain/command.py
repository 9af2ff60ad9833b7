"""The command line: ``python -m roofline_helpers explain script.py:function``."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from roofline_helpers._checks import BadType, BadValue, RooflineError, name_of, shown
from roofline_helpers.explain.explaining import explain

TURNS = "how often a loop turns whose trip count is unknown, by its name or line: model.py:12=30"


def main(arguments: Sequence[str] | None = None) -> int:
    """Explain what a script's function returns: a callable and its arguments.

    Returns
    -------
    int
        0; 1 where it can't be explained, with the reason on stderr.
    """
    options = _parsed(arguments)
    try:
        if options.out is not None:
            _check_out(Path(options.out))
        if Path(options.what.partition(":")[0]).suffix == ".py" or ":" in options.what:
            fn, args, kwargs = made(options.what)
        else:
            fn, args, kwargs = Path(options.what), (), {}
        why = explain(
            fn,
            *args,
            chip=options.chip,
            topology=options.topology,
            jit=not options.as_it_is,
            seconds=options.seconds,
            energy=options.energy,
            turns=turns(options.turns),
            trace=options.trace,
            hlo=options.hlo,
            **kwargs,
        )
    except (RooflineError, OSError) as error:
        print(f"explain: {error}", file=sys.stderr)
        return 1
    print(why.to_json() if options.json else why)
    if options.out is not None:
        print(f"written: {why.save(options.out)}", file=sys.stderr if options.json else None)
    return 0


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="roofline explain",
        description="Where the time of a JAX function goes, kernel by kernel, and why.",
    )
    parser.add_argument(
        "what",
        metavar="SCRIPT.py:FUNCTION",
        help="a function without arguments that returns what to call and its arguments: "
        "return f, (x, y). Or the folder of a trace",
    )
    parser.add_argument("--out", metavar="FILE", help="also write why.html or why.json")
    parser.add_argument("--json", action="store_true", help="print the record, for programs")
    parser.add_argument(
        "--chip", help="compile for this TPU, or a slice such as v6e-8, instead of running it"
    )
    parser.add_argument("--topology", help="layout of those chips, for instance 4x4x4")
    parser.add_argument("--turns", metavar="LOOP=N", action="append", default=[], help=TURNS)
    parser.add_argument("--seconds", type=float, default=1.0, help="about how long to time it")
    parser.add_argument("--as-it-is", action="store_true", help="call it without jax.jit")
    parser.add_argument("--energy", action="store_true", help="also measure joules")
    parser.add_argument("--trace", metavar="FOLDER", help="keep the profiler's trace")
    parser.add_argument("--hlo", metavar="FOLDER", help="XLA's dumps, for a trace from elsewhere")
    return parser.parse_args(arguments)


def turns(stated: Sequence[str]) -> dict[str, int]:
    """Return how often loops turn, from words such as "while.5=30" or "model.py:12=30".

    Raises
    ------
    BadValue
        A word of another form.
    """
    pairs = [each.rpartition("=") for each in stated]
    for each, (loop, _, n) in zip(stated, pairs, strict=True):
        if not loop or not n.isdecimal():
            raise BadValue(f"--turns must be LOOP=N, for instance model.py:12=30, got {each}")
    return {loop: int(n) for loop, _, n in pairs}


def _check_out(out: Path) -> None:
    """Raise where the result could not be written, before anything runs."""
    if out.suffix not in (".html", ".json"):
        raise BadValue(f"--out must end in .html or .json, got {shown(out.name)}")
    if not out.absolute().parent.is_dir():
        raise BadValue(f"--out: there is no folder {out.absolute().parent}")


def made(what: str) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Return the callable and the two sorts of arguments that ``script.py:function`` makes.

    Raises
    ------
    BadValue
        No such file.
    UnknownName
        No such function in it.
    BadType
        It returns something else.
    """
    file, _, name = what.rpartition(":") if ":" in what else (what, "", "main")
    path = Path(file)
    if not path.is_file():
        raise BadValue(f"{file}: there is no such file. Give SCRIPT.py:FUNCTION")
    spec = importlib.util.spec_from_file_location(f"explained_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise BadValue(f"{file}: it is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(path.absolute().parent))
    try:
        spec.loader.exec_module(module)
        functions = {key: value for key, value in vars(module).items() if callable(value)}
        if ":" not in what and name not in functions:
            own = [key for key, value in functions.items() if value.__module__ == spec.name]
            listed = " or ".join(f"{path.name}:{key}" for key in own) or "there are none"
            raise BadValue(f"{path.name} has no function {name}: name one, {listed}")
        returned = functions[name_of(f"function of {path.name}", name, functions)]()
    except RooflineError:
        raise
    except Exception as error:
        raise BadValue(f"{what} failed: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(str(path.absolute().parent))
    match returned:
        case (fn, args) if callable(fn):
            return fn, args if isinstance(args, tuple) else (args,), {}
        case (fn, tuple(args), dict(kwargs)) if callable(fn):
            return fn, args, kwargs
    raise BadType(
        f"{what} must return what to call and its arguments, f, (x, y) or f, (x, y), {{'k': 3}}; "
        f"got {shown(returned)}"
    )
