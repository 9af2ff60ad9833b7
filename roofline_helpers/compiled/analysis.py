"""Compile a function for a chip, and count what came out."""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import os
import re
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from roofline_helpers import hardware, hlo
from roofline_helpers._checks import (
    BadType,
    BadValue,
    RooflineError,
    flag,
    name_of,
    shown,
    text,
    whole,
)
from roofline_helpers.compiled import stand_ins, targets
from roofline_helpers.compiled.arguments import Arguments, CannotTrace, reason
from roofline_helpers.compiled.display import compiled_by
from roofline_helpers.compiled.kernel import CompiledKernel
from roofline_helpers.compiled.quiet import quiet
from roofline_helpers.compiled.report import Report
from roofline_helpers.compiled.targets import NoCompiler


class CannotCompile(RooflineError, RuntimeError):
    """The compiler refused the program."""


class RecordUsed(UserWarning):
    """A committed record stands in for the compiler."""


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
    strict: bool = False,
    unknown_trips: int = 1,
    name: str | None = None,
    **kwargs: Any,
) -> Report:
    """Compile a JAX function for a chip and return its FLOPs, bytes and kernels.

    Parameters
    ----------
    fn : callable
        A plain function, or one that `jax.jit` made.
    *args, **kwargs
        Its arguments: arrays, `jax.ShapeDtypeStruct` objects, pytrees of them. Arguments that are
        sharded over a mesh give a program for all its devices, and a report for one of them; the
        mesh may be of any devices, also an abstract one. `jax.shard_map` inside the function must
        have an abstract mesh, and the arguments be sharded over it.
    chip : str, hardware.Chip or jax.Device, optional
        "v4", "v5e", "v5p", "v6e" or "v7x", from any Linux x86-64 machine; or the device that JAX
        has here. By default the latter, be it a CPU.
    record : str, optional
        Name of the committed record that stands in where the compiler for `chip` is not here.
    use : {"auto", "compiler", "record"}
        "auto" compiles where it can, else takes the record. The environment variable
        ROOFLINE_USE overrides it where a record is named; ROOFLINE_RECORD_TO names a directory
        that records are written to.
    topology : str, optional
        Layout of the chips, for instance "4x4x4". By default the smallest that holds the mesh.
    static_argnums, static_argnames, donate_argnums : optional
        As for `jax.jit`; for a function that is jitted already, give them there.
    strict : bool
        Whether an instruction that the reader does not know is an error.
    unknown_trips : int
        How often a loop turns whose trip count can't be found, at least 1.
    name : str, optional
        What the report calls the function.

    Returns
    -------
    Report

    Raises
    ------
    UnknownName
        No such chip; the message gives the nearest.
    BadType, BadValue
        An option, such as `name`, that the function takes too: bind the function's own first. An
        option of another type, or outside what is allowed.
    NoCompiler
        The compiler for this chip is not here, and no record: the message says what to install.
    CannotTrace
        JAX can't trace the function with these arguments: wrong shapes, missing arguments.
    CannotCompile
        The compiler refused the program, for instance because it needs more memory than there is.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> x = jax.ShapeDtypeStruct((2048, 2048), jnp.bfloat16)
    >>> report = analyze(jnp.matmul, x, x, chip="v6e")  # doctest: +SKIP
    >>> report.flops, report.hbm_bytes, report.bound  # doctest: +SKIP
    (17179869184.0, 25165824, 'compute')
    """
    own = {key: value for key, value in locals().items() if key not in ("fn", "args", "kwargs")}
    _refuse_ambiguous(fn, args, own)
    if use == "auto" and record is not None:
        use = os.environ.get(stand_ins.USE, use)
    use = name_of("way to analyse", use, ["auto", "compiler", "record"])
    known = hardware.chip(chip) if chip is not None else None
    if not callable(fn):
        raise BadType(f"the function must be callable, got {fn!r} ({type(fn).__name__})")
    for option, value in (("name", name), ("record", record), ("topology", topology)):
        if value is not None:
            text(option, value)
    if record is not None and not re.fullmatch(r"[\w\-]+", record):
        raise BadValue(f"a record's name has letters, digits, '-' and '_', got {record!r}")
    options = {
        "static_argnums": static_argnums,
        "static_argnames": static_argnames,
        "donate_argnums": donate_argnums,
    }
    task = _Task(
        fn,
        Arguments(args, kwargs),
        known,
        jit={option: value for option, value in options.items() if value is not None},
        topology=topology,
        strict=flag("strict", strict),
        unknown_trips=whole("unknown_trips", unknown_trips),
        name=name,
    )
    stored = _stand_in(known, record, use)
    if stored is not None:
        return stored
    folder = stand_ins.folder_to_write() if record is not None else None
    report = task.report()
    if record is not None and folder is not None:
        stand_ins.keep(report, record, folder)
    return report


def _refuse_ambiguous(fn: Any, args: tuple[Any, ...], own: Mapping[str, Any]) -> None:
    """Raise BadType where an option of `analyze` could be meant for the function."""
    plain = inspect.unwrap(fn)
    bound = plain.keywords if isinstance(plain, functools.partial) else {}
    try:
        signature = inspect.signature(fn)
        filled = {*bound, *signature.bind_partial(*args).arguments}
    except (TypeError, ValueError):  # no signature; or too many arguments, which JAX will say
        return
    parameters, defaults = signature.parameters, inspect.signature(analyze).parameters
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    for key, value in own.items():
        theirs = key in parameters and parameters[key].kind in named and key not in filled
        if theirs and value is not defaults[key].default:
            raise BadType(
                f"{key}={shown(value)} is an option of analyze, and the function takes {key!r} "
                f"too: bind the function's with functools.partial(fn, {key}=...)"
            )


def _stand_in(chip: hardware.Chip | None, record: str | None, use: str) -> Report | None:
    """Return the record to show, None where the compiler is to be used; raise without either."""
    missing = targets.can_compile(chip) if use != "record" else "the record was asked for"
    if missing is None:
        return None
    if use == "compiler":
        raise NoCompiler(missing)
    there = f", and there is no record {record!r} of it" if record else ""
    if chip is None:
        raise NoCompiler(f"{missing}{there}")
    stored = stand_ins.find(record, chip.key) if record is not None else None
    if stored is None:
        names = stand_ins.names_for(chip.key)
        listed = f". Records for {chip.name}: {', '.join(names)}" if names else ""
        raise NoCompiler(f"{missing}{there}{listed}")
    if use == "auto":
        message = f"showing the record {record!r} for {chip.name}, compiled by "
        message += f"{compiled_by(stored)}: {missing}"
        warnings.warn(message, RecordUsed, stacklevel=3)
    return stored


@dataclass(frozen=True)
class _Task:
    """A function to compile, with its arguments, for a chip; None is the device that is here."""

    fn: Any
    arguments: Arguments
    chip: hardware.Chip | None
    jit: Mapping[str, Any] = field(default_factory=dict)
    topology: str | None = None
    strict: bool = False
    unknown_trips: int = 1
    name: str | None = None

    def report(self) -> Report:
        """Compile it, and return what came out."""
        import jax

        started = time.perf_counter()
        here = targets.first_device()
        mesh, described = self.arguments.mesh, self.arguments.described()
        program = self._compiled(here, described)
        platform = self.chip.kind if self.chip is not None else _platform(here)
        target = self.chip.key if self.chip is not None else _target(here)
        written = program.as_text()
        ledger = hlo.kernels(
            written,
            platform,
            strict=self.strict,
            unknown_trips=self.unknown_trips,
            price=_price(target),
        )
        axes = hlo.axes_of_mesh(mesh)
        return Report(
            name=self._called,
            target=target,
            platform=platform,
            arguments=described,
            rows=tuple(hlo.with_axes(row, axes) for row in ledger.rows),
            notes=(*ledger.notes, *self._notes(here, platform)),
            xla=_cost_analysis(program),
            jax_version=jax.__version__,
            compiler=targets.compiler(platform),
            devices=math.prod(mesh.values()),
            seconds=time.perf_counter() - started,
            text=written,
        )

    @property
    def _called(self) -> str:
        inner = self.fn.func if isinstance(self.fn, functools.partial) else self.fn
        called = self.name or getattr(inner, "__name__", None) or type(self.fn).__name__
        return "function" if called == "<lambda>" else called

    def _ahead(self, here: Any) -> hardware.Chip | None:
        """Return the TPU that it is compiled for ahead of time; None for the device here."""
        if self.chip is None or self.chip.kind != "tpu" or targets.is_chip(here, self.chip):
            return None
        return self.chip

    def _compiled(self, here: Any, described: tuple[str, ...]) -> Any:
        """Return the compiled program."""
        lowered = self._lowered(here, described)
        with quiet(), _raised_as(CannotCompile, self._refused(here)):
            return lowered.compile()

    def _lowered(self, here: Any, described: tuple[str, ...]) -> Any:
        """Return the traced function, with its arguments where they belong."""
        import jax

        arguments, jit, ahead = self.arguments, dict(self.jit), self._ahead(here)
        jitted = hasattr(self.fn, "lower")
        if ahead is not None:
            arguments, default = arguments.moved(ahead, self.topology, _statics(jit))
            if not jitted and not arguments.arrays:
                jit["out_shardings"] = default
        if jitted and jit:
            raise BadType(f"{self._called} is jitted already: give {', '.join(jit)} to jax.jit")
        call = f"{self._called}({', '.join(described)})"
        with _raised_as(
            CannotTrace, lambda e: f"JAX can't trace {call}: {type(e).__name__}: {reason(e)}"
        ):
            fn = self.fn if jitted else jax.jit(self.fn, **jit)
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="Some donated buffers were not usable")
                return fn.lower(*arguments.positional, **arguments.named)

    def _refused(self, here: Any) -> Callable[[Exception], str]:
        where = self.chip.name if self.chip is not None else str(here)
        return lambda error: f"the compiler for {where} refused {self._called}: {reason(error)}"

    def _notes(self, here: Any, platform: str) -> list[str]:
        notes = []
        if self._ahead(here) is not None and targets.jax_version() < (0, 8):
            notes.append("this JAX's optimal_seconds does not depend on the chip")
        if platform == "cpu":
            notes.append(
                "a CPU has no separate HBM: bytes are those that cross kernels, caches or not"
            )
        return notes


@contextlib.contextmanager
def _raised_as(kind: type[RooflineError], message: Callable[[Exception], str]) -> Iterator[None]:
    """Turn whatever is raised inside into an error of ours."""
    try:
        yield
    except Exception as error:
        raise kind(message(error)) from error


def _platform(device: Any) -> str:
    return {"cuda": "gpu", "rocm": "gpu"}.get(str(device.platform), str(device.platform))


def _target(device: Any) -> str:
    chip = targets.chip_of(device)
    return str(device.device_kind) if chip is None else chip.key


def _price(target: str) -> Callable[[Sequence[hlo.Row]], float] | None:
    """Return what rows cost on a chip, to find the most expensive branch; None without a chip."""
    chip = targets.chip_of(target)
    if chip is None:
        return None
    device = chip.per_device()
    return lambda rows: sum(CompiledKernel.of(row, device).roof_seconds or 0.0 for row in rows)


def _cost_analysis(program: Any) -> dict[str, float]:
    """Return the totals of `cost_analysis`, whatever form it has; per-operand entries left out."""
    try:
        with quiet():
            costs = program.cost_analysis()
    except Exception:  # not offered by every backend
        return {}
    if isinstance(costs, list):
        costs = costs[0] if costs else {}
    wanted = ("flops", "transcendentals", "bytes accessed", "optimal_seconds")
    return {key: float(costs[key]) for key in wanted if key in (costs or {})}


def _statics(jit: Mapping[str, Any]) -> set[int]:
    positions = jit.get("static_argnums", ())
    return {positions} if isinstance(positions, int) else set(positions)
