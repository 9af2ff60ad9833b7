"""Compile a lowered program for the device here, or for TPUs without having any."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from roofline_helpers import chips
from roofline_helpers.common.checks import RooflineError
from roofline_helpers.common.show import progress
from roofline_helpers.xla.lower import Lowered, reason_of
from roofline_helpers.xla.targets import quiet

# --- The compiler's output: text, costs, memory --------------------------------------------------


@dataclass(frozen=True)
class MemoryStats:
    """Bytes of HBM that a program needs on one device, by the compiler's allocation.

    `aliased` are results in the memory of donated arguments: they count once.

    Examples
    --------
    >>> MemoryStats(arguments=64, results=64, temporaries=8, aliased=64, code=2).total
    74
    """

    arguments: int = 0
    results: int = 0
    temporaries: int = 0
    aliased: int = 0
    code: int = 0

    @property
    def total(self) -> int:
        """Bytes in all."""
        return self.arguments + self.results + self.temporaries + self.code - self.aliased


@dataclass(frozen=True)
class CompilerOutput:
    """The compiler's output: HLO text, the result of `cost_analysis`, and the memory it needs."""

    text: str
    costs: Mapping[str, float] = field(default_factory=dict)
    memory: MemoryStats | None = None


def read_executable(program: Any) -> CompilerOutput:
    """Return the output of a `jax.stages.Compiled`, or of an object like it."""
    with quiet():
        return _output(program.as_text(), program.cost_analysis, program.memory_analysis)


def _silently(ask: Any) -> Any:
    """Return an answer, None if the backend has none."""
    try:
        return ask()
    except Exception:  # not offered by every backend
        return None


_WANTED = ("bytes accessed", "flops", "optimal_seconds", "transcendentals")


def _output(text: str, costs: Any, memory: Any) -> CompilerOutput:
    """Return a program's text with the totals of its analyses, without per-operand entries."""
    totals, stats = _silently(costs) or {}, _silently(memory)
    names = ("argument", "output", "temp", "alias", "generated_code")
    numbers = [int(getattr(stats, f"{name}_size_in_bytes", 0)) for name in names]
    return CompilerOutput(
        text,
        {key: float(totals[key]) for key in _WANTED if key in totals},
        None if stats is None else MemoryStats(*numbers),
    )


class CannotCompile(RooflineError, RuntimeError):
    """The compiler refused the program.

    Examples
    --------
    >>> issubclass(CannotCompile, RooflineError)
    True
    """


_OVER = (
    re.compile(r"Used (?P<used>[\d.]+[KMGT]?) of (?P<of>[\d.]+[KMGT]?) (?P<space>\w+)"),
    re.compile(
        r"\((?P<used>[\d.]+[KMGT]?)\) exceeds available (?P<space>\w+) \((?P<of>[\d.]+[KMGT]?)\)"
    ),
)


class DoesNotFit(CannotCompile):
    """The program needs more memory than a device has.

    `needed` and `capacity` are bytes of the memory `space`; None if the compiler doesn't state
    them.

    Examples
    --------
    >>> issubclass(DoesNotFit, CannotCompile)
    True
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        matches = [match for form in _OVER for match in [form.search(message)] if match]
        self.needed = _bytes(matches[0]["used"]) if matches else None
        self.capacity = _bytes(matches[0]["of"]) if matches else None
        self.space = matches[0]["space"].lower() if matches else "hbm"


@contextlib.contextmanager
def compiler_errors(what: str) -> Iterator[None]:
    """Turn a compiler's error into a CannotCompile that begins with `what`."""
    try:
        yield
    except RooflineError:
        raise
    except Exception as error:
        message = f"{what}: {reason_of(error)}"
        out = "RESOURCE_EXHAUSTED" in message or "Ran out of memory" in message
        raise (DoesNotFit if out else CannotCompile)(message) from error


def executable_of(lowered: Lowered, options: Mapping[str, Any] | None = None) -> Any:
    """Return the executable of a program for the device here, with compiler options."""
    with compiler_errors(f"the compiler refused {lowered.name}"), quiet():
        return lowered.stage.compile(compiler_options=dict(options) if options else None)


def compile_program(lowered: Lowered) -> CompilerOutput:
    """Compile a lowered program for its target, and return the compiler's output."""
    with progress() as say:
        say(f"compiling {lowered.name} for {lowered.target}")
        if not lowered.devices:
            return read_executable(executable_of(lowered))
        chip = chips.chip(lowered.target).name
        with compiler_errors(f"the compiler for {chip} refused {lowered.name}"):
            return compile_ahead(lowered)


def compile_ahead(lowered: Lowered) -> CompilerOutput:
    """Compile a program for the devices of a topology, which need not exist."""
    from jax._src.interpreters import mlir
    from jaxlib import xla_client

    client, options = lowered.devices[0].client, _options(lowered)
    devices = xla_client.DeviceList(lowered.devices)
    with quiet():
        try:
            program = client.compile(lowered.module, devices, options)
        except TypeError:  # before JAX 0.8 it takes bytes
            code = bytes(mlir.module_to_bytecode(lowered.module))
            program = client.compile(code, devices, options)
    text = "\n\n".join(module.to_string() for module in program.hlo_modules())
    return _output(text, program.cost_analysis, program.get_compiled_memory_stats)


def _options(lowered: Lowered) -> Any:
    """Return the options that JAX would give the compiler."""
    import numpy as np
    from jax._src import compiler

    count = len(lowered.devices)
    options = compiler.get_compile_options(
        num_replicas=1,
        num_partitions=count,
        device_assignment=np.array(lowered.devices, dtype=object).reshape(1, count),
        env_options_overrides=dict(lowered.options) or None,
    )
    inputs, outputs = _placed(lowered.module)
    options.parameter_is_tupled_arguments = len(inputs) > 2000
    if count > 1:  # the compiler may choose shardings that nobody gave
        build = options.executable_build_options
        free = [[not each for each in side] or [True] for side in (inputs, outputs)]
        build.allow_spmd_sharding_propagation_to_parameters = free[0]
        build.allow_spmd_sharding_propagation_to_output = free[1]
    return options


def _placed(module: Any) -> tuple[list[bool], list[bool]]:
    """Return for each argument and result of a module whether its sharding was given."""
    main = next(
        operation
        for operation in module.body.operations
        if operation.operation.attributes["sym_name"].value == "main"
    )

    def said(attribute: str) -> list[bool]:
        if attribute not in main.operation.attributes:
            return []
        each = main.operation.attributes[attribute]
        return [any(name in part for name in ("sdy.sharding", "mhlo.sharding")) for part in each]

    kind = main.operation.attributes["function_type"].value
    inputs, outputs = said("arg_attrs"), said("res_attrs")
    return inputs or [False] * len(kind.inputs), outputs or [False] * len(kind.results)


def _bytes(text: str) -> float:
    """Return 31.25G as bytes: the compiler counts in powers of 1024."""
    power = " KMGT".find(text[-1])
    return float(text.rstrip("KMGT")) * 1024.0 ** max(power, 0)
