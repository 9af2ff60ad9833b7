"""Compile a function for a chip, and count what came out."""

from __future__ import annotations

import functools
import inspect
import math
import os
import re
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from roofline_helpers import hardware, hlo
from roofline_helpers._checks import (
    BadType,
    BadValue,
    flag,
    mapping,
    name_of,
    shown,
    text,
    whole,
)
from roofline_helpers.compiled import compiling, lowering, stand_ins, targets
from roofline_helpers.compiled.arguments import Arguments
from roofline_helpers.compiled.compiling import CannotCompile, DoesNotFit
from roofline_helpers.compiled.display import compiled_by
from roofline_helpers.compiled.kernel import CompiledKernel
from roofline_helpers.compiled.lowering import Lowered
from roofline_helpers.compiled.program import Compiled, read
from roofline_helpers.compiled.report import Report
from roofline_helpers.compiled.targets import NoCompiler
from roofline_helpers.hlo.blocks import PallasKernel
from roofline_helpers.show import si

LONG = 60
"""Seconds of processor time from which on a report says what compiling took."""


class RecordUsed(UserWarning):
    """A committed record takes the compiler's place.

    Examples
    --------
    >>> issubclass(RecordUsed, UserWarning)
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
    strict: bool = False,
    unknown_trips: int = 1,
    turns: Mapping[str, int] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> Report:
    """Compile a JAX function for a chip and return its FLOPs, bytes and kernels.

    Parameters
    ----------
    fn : callable
        A plain function, or one that `jax.jit`, `equinox.filter_jit` or `flax.nnx.jit` made; or
        what its `trace`, `lower` or `lower(...).compile()` returns, then without arguments.
    *args, **kwargs
        Its arguments: arrays, `jax.ShapeDtypeStruct` objects, pytrees of them, Equinox and NNX
        modules. What is spread over a mesh (arguments, `in_shardings`, `jax.set_mesh`,
        `jax.shard_map`) gives a program for all its devices, and a report for one of them; the
        mesh may be of any devices, also an abstract one.
    chip : str, hardware.Chip or jax.Device, optional
        "v4", "v5e", "v5p", "v6e" or "v7x", from any Linux x86-64 machine; a slice of them by its
        cloud's name, such as "v6e-8"; or the device that JAX has here. By default the latter, be
        it a CPU.
    record : str, optional
        Name of the committed record to use where the compiler for `chip` is not available.
    use : {"auto", "compiler", "record"}
        "auto" compiles where it can, else takes the record. The environment variable
        ROOFLINE_USE overrides it where a record is named; ROOFLINE_RECORD_TO names a directory
        that records are written to. "record" is for programs that take minutes: only
        ROOFLINE_USE=whole compiles them.
    topology : str, optional
        Layout of the chips, for instance "4x4x4", or "4*16x16" for four slices, between which the
        mesh's first axis exchanges over hosts. By default the smallest slice that holds the mesh.
    static_argnums, static_argnames, donate_argnums : optional
        As for `jax.jit`; for a function that is jitted already, give them there.
    strict : bool
        Whether an instruction that the reader does not know is an error.
    unknown_trips : int
        How often a loop turns whose trip count can't be found, at least 1.
    turns : mapping of str to int, optional
        How often such loops turn, one by one: by the loop's name, or by its line ("model.py:30").
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
    DoesNotFit
        The program needs more memory than a device has; the error knows how much.
    CannotCompile
        The compiler refused the program, or died of it.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> x = jax.ShapeDtypeStruct((2048, 2048), jnp.bfloat16)
    >>> report = analyze(jnp.matmul, x, x, chip="v6e")  # doctest: +SKIP
    >>> report.flops, report.hbm_bytes, report.bound  # doctest: +SKIP
    (17179869184.0, 25165824, 'compute')
    """
    own = {key: value for key, value in locals().items() if key not in ("fn", "args", "kwargs")}
    refuse_ambiguous(analyze, fn, args, own)
    use = _way(use, record)
    chip, layout = targets.slice_of(chip)
    topology = topology if topology is not None else layout
    known = hardware.chip(chip) if chip is not None else None
    if not (callable(fn) or lowering.is_stage(fn)):
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
    task = Request(
        fn,
        Arguments(args, kwargs),
        known,
        jit={option: value for option, value in options.items() if value is not None},
        topology=topology,
        strict=flag("strict", strict),
        unknown_trips=whole("unknown_trips", unknown_trips),
        turns=turns_of(turns),
        name=name,
    )
    stored = _stand_in(known, record, use)
    if stored is not None:
        return stored
    return _recorded(task, record)


def turns_of(given: Any) -> dict[str, int]:
    """Return how often loops turn, checked."""
    return {key: whole(f"turns of {key}", n) for key, n in mapping("turns", given or {}).items()}


def refuse_ambiguous(
    entry: Callable[..., Any], fn: Any, args: tuple[Any, ...], own: Mapping[str, Any]
) -> None:
    """Raise BadType where an option of `analyze` or `explain` could be meant for the function."""
    plain = inspect.unwrap(fn)
    bound = plain.keywords if isinstance(plain, functools.partial) else {}
    try:
        signature = inspect.signature(fn)
        filled = {*bound, *signature.bind_partial(*args).arguments}
    except (TypeError, ValueError):  # no signature; or too many arguments, which JAX will say
        return
    parameters, defaults = signature.parameters, inspect.signature(entry).parameters
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    for key, value in own.items():
        theirs = key in parameters and parameters[key].kind in named and key not in filled
        if theirs and value is not defaults[key].default:
            raise BadType(
                f"{key}={shown(value)} is an option of {entry.__name__}, and the function takes "
                f"{key!r} too: bind the function's with functools.partial(fn, {key}=...)"
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


def _way(use: str, record: str | None) -> str:
    """Return which way to analyse, with what the environment says where a record is named."""
    if record is not None:
        asked = os.environ.get(stand_ins.USE, "")
        if asked == "whole":
            use = "compiler"
        elif use == "auto" and asked:
            use = asked
    return name_of("way to analyse", use, ["auto", "compiler", "record"])


def _recorded(task: Request, record: str | None) -> Report:
    """Compile, and write down what came out, or the refusal, where records are to be written."""
    folder = stand_ins.folder_to_write() if record is not None else None
    if record is None or folder is None:
        return task.report()
    try:
        report = task.report()
    except DoesNotFit as error:
        if task.chip is not None:
            stand_ins.keep_refusal(error, record, task.chip.key, folder)
        raise
    stand_ins.keep(report, record, folder)
    return report


@dataclass(frozen=True)
class Request:
    """A function to compile, with its arguments, for a chip; None is the device that is here."""

    fn: Any
    arguments: Arguments
    chip: hardware.Chip | None
    jit: Mapping[str, Any] = field(default_factory=dict)
    topology: str | None = None
    strict: bool = False
    unknown_trips: int = 1
    turns: Mapping[str, int] = field(default_factory=dict)
    name: str | None = None

    def report(self) -> Report:
        """Compile it, and return what came out."""
        import jax

        started, busy = time.perf_counter(), sum(os.times()[:4])
        here = targets.first_device()
        described = self.arguments.described()
        made = self._made(here, described)
        platform, target = made.platform, made.target
        checked(made.program.text, platform, self._called)
        ledger = hlo.kernels(
            made.program.text,
            platform,
            strict=self.strict,
            unknown_trips=self.unknown_trips,
            turns=self.turns,
            calls=made.calls,
            price=_price(target),
        )
        axes = hlo.axes_of_mesh(made.mesh)
        return Report(
            name=self._called,
            target=target,
            platform=platform,
            arguments=described,
            rows=tuple(hlo.with_axes(row, axes) for row in ledger.rows),
            notes=(
                *lost(made.unused, made.requested),
                *ledger.notes,
                *self._notes(here, platform, sum(os.times()[:4]) - busy),
            ),
            xla=made.program.costs,
            jax_version=jax.__version__,
            compiler=targets.compiler(platform),
            devices=made.devices,
            mesh=made.mesh,
            topology=made.topology,
            memory=made.program.memory,
            requested_flops=made.requested,
            calls=made.calls,
            seconds=time.perf_counter() - started,
            text=made.program.text,
        )

    @property
    def _called(self) -> str:
        return self.name or lowering.named(self.fn)

    def _ahead(self, here: Any) -> hardware.Chip | None:
        """Return the TPU that it is compiled for ahead of time; None for the device here."""
        if self.chip is None or self.chip.kind != "tpu" or targets.is_chip(here, self.chip):
            return None
        return self.chip

    def _made(self, here: Any, described: tuple[str, ...]) -> _Made:
        """Return the compiled program."""
        if lowering.is_compiled(self.fn):
            return self._given()
        chip = self._ahead(here)
        return self._made_here(here, described) if chip is None else self._made_for(chip, described)

    def _given(self) -> _Made:
        """Return what a compiled object holds."""
        executable = getattr(self.fn, "compiled", self.fn)  # of Equinox and of NNX
        program, device = read(executable), targets.device_of(executable)
        if self.chip is not None and not targets.is_chip(device, self.chip):
            raise BadValue(
                f"the executable was compiled for {targets.called(device)}, and chip= is "
                f"{self.chip.key}: leave chip= out, or give the function and its arguments"
            )
        target = targets.called(device)
        count = int((re.findall(r"num_partitions=(\d+)", program.text[:20000]) or ["1"])[0])
        return _Made(program, targets.platform_of(device), target, count)

    def _made_here(self, here: Any, described: tuple[str, ...]) -> _Made:
        """Compile for the device that JAX has here."""
        self.arguments.mesh  # noqa: B018 - refuses different meshes
        platform = targets.platform_of(here)
        with lowering.errors_of(self.fn, described):
            lowered, traced, _ = lowering.lower_here(self.fn, self.arguments, self.jit)
            known = lowering.read(lowered, traced, platform)
        with compiling.errors_of(f"the compiler for {here} refused {self._called}"):
            program = compiling.here(lowered, self._called)
        return _Made.of(known, program, platform, targets.called(here))

    def _made_for(self, chip: hardware.Chip, described: tuple[str, ...]) -> _Made:
        """Compile for a chip that need not be here."""
        mesh = self.arguments.mesh
        layout = targets.layout_for(chip, math.prod(mesh.values()), self.topology)
        devices = targets.placed(chip, layout, tuple(mesh.values()))
        with lowering.errors_of(self.fn, described):
            arguments = self.arguments.shapes(_statics(self.jit))
            lowered = lowering.lower(self.fn, arguments, self.jit, devices)
        layout = targets.layout_for(chip, lowered.partitions, self.topology)
        sizes = tuple(lowered.mesh.values()) or (lowered.partitions,)
        devices = targets.placed(chip, layout, sizes)
        target = {"chip": chip.key, "layout": layout, "name": self._called}
        with compiling.errors_of(f"the compiler for {chip.name} refused {self._called}"):
            program = compiling.ahead(lowered, devices, target)
        return _Made.of(lowered, program, "tpu", chip.key, layout)

    def _notes(self, here: Any, platform: str, took: float) -> list[str]:
        notes = []
        if took > LONG:
            notes.append(f"compiling took {took:.0f} s of processor time")
        if self._ahead(here) is not None and targets.jax_version() < (0, 8):
            notes.append("this JAX's optimal_seconds does not depend on the chip")
        if platform == "cpu":
            notes.append(
                "a CPU has no separate HBM: bytes are those that cross kernels, caches or not"
            )
        return notes


@dataclass(frozen=True)
class _Made:
    """A compiled program, what it is for, and how many devices it is spread over."""

    program: Compiled
    platform: str
    target: str
    devices: int = 1
    mesh: Mapping[str, int] = field(default_factory=dict)
    topology: str = ""
    calls: tuple[PallasKernel, ...] = ()
    requested: float | None = None
    unused: float = 0.0

    @classmethod
    def of(
        cls, known: Lowered, program: Compiled, platform: str, target: str, topology: str = ""
    ) -> _Made:
        """Return what was made of a lowered program."""
        what = known.partitions, known.mesh, topology, known.calls, known.requested, known.unused
        return cls(program, platform, target, *what)


MOST_UNUSED = 0.5
"""Share of the products' FLOPs that may be needed by nothing: a gradient without its value needs no
last product of the forward pass, which is half of a program of one layer."""


def lost(unused: float, requested: float | None) -> tuple[str, ...]:
    """Return a note where most products that a function asks for aren't in the program."""
    if unused <= MOST_UNUSED or not requested:
        return ()
    asked = si(requested, "FLOP")
    return (
        f"{unused:.0%} of the {asked} of products asked for are NOT in this program: nothing that "
        "the function returns needs them, so the compiler leaves them out. Return what they are "
        "for (gradients, updated parameters); what a function only writes into its arguments is "
        "lost under jax.jit",
    )


def checked(text: str, platform: str, called: str) -> None:
    """Raise CannotCompile unless a program is one for this platform.

    Only TPUs have tiled layouts, and each array and scalar of a TPU's program has one.
    """
    if hlo.is_tiled(text) is not None and hlo.is_tiled(text) != (platform == "tpu"):
        raise CannotCompile(
            f"what came out for {called} is no program for a {platform.upper()}: nothing is "
            "reported. Please report this call"
        )


def _price(target: str) -> Callable[[Sequence[hlo.Row]], float] | None:
    """Return what rows cost on a chip, to find the most expensive branch; None without a chip."""
    chip = targets.chip_of(target)
    if chip is None:
        return None
    device = chip.per_device()
    return lambda rows: sum(CompiledKernel.of(row, device).roof_seconds or 0.0 for row in rows)


def _statics(jit: Mapping[str, Any]) -> set[int]:
    positions = jit.get("static_argnums", ())
    return {positions} if isinstance(positions, int) else set(positions)
