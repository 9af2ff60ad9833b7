"""Compile a lowered program for the device here, or for TPUs without having any."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import pickle
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roofline.terminal import progress, slow
from roofline.xla.lower import Lowered, reason_of
from roofline.xla.targets import (
    WITHOUT_TPU,
    all_devices,
    device_of,
    jax_version,
    other_libtpu,
    platform_of,
    quiet,
)
from roofline_helpers import chips
from roofline_helpers.common.checks import RooflineError

if TYPE_CHECKING:
    import jax
    from jaxlib.mlir import ir
    from jaxlib.xla_client import CompileOptions

    from roofline.xla.buffers import Buffer

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
    costs = functools.partial(costs_of, program, costs_may_abort())
    with quiet():
        return _output(program.as_text(), costs, program.memory_analysis)


def costs_of(program: Any, may_abort: bool) -> Any:
    """Return what `cost_analysis` of an executable for the device here says.

    Raises
    ------
    CannotCompile
        The question could end the process (`costs_may_abort`).
    """
    if may_abort and platform_of(device_of(program)) == "tpu":
        raise CannotCompile("this libtpu's cost_analysis could end the process")
    return program.cost_analysis()


def costs_may_abort() -> bool:
    """Return whether the TPU compiler's `cost_analysis` may end the process.

    It does with JAX 0.7.2 and 0.8.0 if TPU_ACCELERATOR_TYPE names a v4, v5p or v6e when JAX starts,
    and Colab and TPU VMs name one. A program's text and memory can be asked for.
    """
    return "TPU_ACCELERATOR_TYPE" in os.environ and jax_version() < SOUND


SOUND = (0, 9)
"""Version of JAX from which on `cost_analysis` was seen to be safe."""


def _answer_or_none(ask: Callable[[], Any]) -> Any:
    """Return an answer, None if the backend has none."""
    try:
        return ask()
    except Exception:  # not offered by every backend
        return None


_WANTED = ("bytes accessed", "flops", "optimal_seconds", "transcendentals")


def _output(text: str, costs: Callable[[], Any], memory: Callable[[], Any]) -> CompilerOutput:
    """Return a program's text with the totals of its analyses, without per-operand entries."""
    totals, stats = _answer_or_none(costs) or {}, _answer_or_none(memory)
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
    them. `buffers` are alive when it needs most, the largest first, as in `Report.buffers`; the
    message lists ten. They are known of a TPU's HBM, and not in a record.

    Examples
    --------
    >>> issubclass(DoesNotFit, CannotCompile)
    True
    """

    def __init__(self, message: str, buffers: Sequence[Buffer] = ()) -> None:
        super().__init__(message)
        self.buffers = tuple(buffers)
        matches = [match for form in _OVER for match in [form.search(message)] if match]
        self.needed = _bytes(matches[0]["used"]) if matches else None
        self.capacity = _bytes(matches[0]["of"]) if matches else None
        self.space = matches[0]["space"].lower() if matches else "hbm"


@contextlib.contextmanager
def compiler_errors(attempt: str, platform: str) -> Iterator[None]:
    """Turn the error of a platform's compiler into a CannotCompile that begins with `what`."""
    try:
        yield
    except RooflineError:
        raise
    except Exception as error:
        message = f"{attempt}: {reason_of(error)}"
        if "RESOURCE_EXHAUSTED" in message or "Ran out of memory" in message:
            raise DoesNotFit(message) from error
        advice = other_libtpu() if platform == "tpu" else ()
        raise CannotCompile("\n".join([message, *advice])) from error


def executable_of(lowered: Lowered, options: Mapping[str, Any] | None = None) -> Any:
    """Return the executable of a program for the device here, with compiler options."""
    refused = compiler_errors(f"the compiler refused {lowered.name}", lowered.platform)
    with refused, slow(f"compiling {lowered.name}"), quiet():
        return lowered.stage.compile(compiler_options=dict(options) if options else None)


def compile_program(lowered: Lowered) -> CompilerOutput:
    """Compile a lowered program for its target, and return the compiler's output."""
    with progress() as say:
        say(f"compiling {lowered.name} for {lowered.target}")
        if not lowered.devices:
            return read_executable(executable_of(lowered))
        chip = lowered.made_for
        refused = compiler_errors(f"the compiler for {chip} refused {lowered.name}", "tpu")
        with refused, slow(f"compiling {lowered.name} for {chip}"):
            return compile_ahead(lowered)


def compile_ahead(lowered: Lowered) -> CompilerOutput:
    """Compile a program for the devices of a topology, which need not exist."""
    may_abort = costs_may_abort()  # asked before `quiet`, which changes the environment
    options = _options(lowered)
    with quiet():
        program = _compiled(lowered.module, lowered.devices, options)
    text = "\n\n".join(module.to_string() for module in program.hlo_modules())
    costs = program.cost_analysis
    if may_abort:
        costs = functools.partial(_costs_elsewhere, lowered, options)
    return _output(text, costs, program.get_compiled_memory_stats)


def text_of_refused(lowered: Lowered) -> str:
    """Return the text of a program that a TPU's compiler refuses, as it leaves it in a dump.

    Empty if it leaves none.
    """
    with tempfile.TemporaryDirectory(prefix="roofline-refused-") as folder:
        dump = {"xla_dump_to": folder, "xla_dump_hlo_as_text": True}
        options = _options(lowered, dump)
        with quiet(), contextlib.suppress(Exception):  # it refuses it again
            _compiled(lowered.module, lowered.devices, options)
        texts = [path.read_text("utf-8") for path in Path(folder).glob("*after_optimizations.txt")]
    return texts[0] if texts else ""


def _compiled(module: ir.Module, devices: Sequence[jax.Device], options: CompileOptions) -> Any:
    from jax._src.interpreters import mlir
    from jaxlib import xla_client

    chosen, client = xla_client.DeviceList(tuple(devices)), devices[0].client
    try:
        return client.compile(module, chosen, options)
    except TypeError:  # before JAX 0.8 it takes bytes
        return client.compile(bytes(mlir.module_to_bytecode(module)), chosen, options)


def _costs_elsewhere(lowered: Lowered, options: CompileOptions) -> dict[str, float]:
    """Return a program's `cost_analysis` from a process that no TPU's environment reaches."""
    from jax._src.interpreters import mlir

    numbers = [device.id for device in lowered.devices]
    code = bytes(mlir.module_to_bytecode(lowered.module))
    sent = lowered.target, lowered.topology, numbers, options.SerializeAsString(), code
    answer = "from roofline.xla import compiler; compiler.answer_costs()"
    around = {**os.environ, **WITHOUT_TPU, "JAX_PLATFORMS": "cpu"}
    around.pop("TPU_ACCELERATOR_TYPE", None)
    command = [sys.executable, "-c", answer]
    asked = pickle.dumps(sent)
    done = subprocess.run(command, input=asked, env=around, capture_output=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def answer_costs() -> None:
    """Compile the program on stdin, which `_costs_elsewhere` sends; print its `cost_analysis`."""
    from jax._src.interpreters import mlir
    from jaxlib import xla_client
    from jaxlib.mlir import ir

    target, topology, numbers, options, code = pickle.load(sys.stdin.buffer)
    there = {device.id: device for device in all_devices(chips.chip(target), topology)}
    devices = [there[number] for number in numbers]
    with quiet(), mlir.make_ir_context():
        options = xla_client.CompileOptions.ParseFromString(options)
        costs = _compiled(ir.Module.parse(code), devices, options).cost_analysis()
    print(json.dumps({key: costs[key] for key in _WANTED if key in costs}))


def _options(lowered: Lowered, more: Mapping[str, Any] | None = None) -> CompileOptions:
    """Return the options that JAX would give the compiler, and `more`."""
    import numpy as np
    from jax._src import compiler

    count = len(lowered.devices)
    options = compiler.get_compile_options(
        num_replicas=1,
        num_partitions=count,
        device_assignment=np.array(lowered.devices, dtype=object).reshape(1, count),
        env_options_overrides={**lowered.options, **(more or {})} or None,
    )
    inputs, outputs = _shardings_given(lowered.module)
    options.parameter_is_tupled_arguments = len(inputs) > 2000
    if count > 1:  # the compiler may choose shardings that nobody gave
        build = options.executable_build_options
        free = [[not given for given in side] or [True] for side in (inputs, outputs)]
        build.allow_spmd_sharding_propagation_to_parameters = free[0]
        build.allow_spmd_sharding_propagation_to_output = free[1]
    return options


def _shardings_given(module: ir.Module) -> tuple[list[bool], list[bool]]:
    """Return for each argument and result of a module whether its sharding was given."""
    main = next(
        operation
        for operation in module.body.operations
        if operation.operation.attributes["sym_name"].value == "main"
    )

    def sharded(attribute: str) -> list[bool]:
        if attribute not in main.operation.attributes:
            return []
        notes = main.operation.attributes[attribute]
        return [any(name in note for name in ("sdy.sharding", "mhlo.sharding")) for note in notes]

    kind = main.operation.attributes["function_type"].value
    inputs, outputs = sharded("arg_attrs"), sharded("res_attrs")
    return inputs or [False] * len(kind.inputs), outputs or [False] * len(kind.results)


def _bytes(text: str) -> float:
    """Return 31.25G as bytes: the compiler counts in powers of 1024."""
    power = " KMGT".find(text[-1])
    return float(text.rstrip("KMGT")) * 1024.0 ** max(power, 0)
