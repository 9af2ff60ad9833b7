"""Compile a lowered program: here, or for chips that need not exist, if need be in a subprocess."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from roofline_helpers.common import records
from roofline_helpers.common.checks import RooflineError
from roofline_helpers.common.show import progress
from roofline_helpers.xla.lower import Lowered, reason_of
from roofline_helpers.xla.targets import chip_of, quiet

# --- A compiled program as what its compiler says of it: text, costs, memory ---------------------


@dataclass(frozen=True)
class Memory:
    """Bytes of HBM that a program needs on one device, as the compiler laid it out.

    `aliased` are results that take the place of donated arguments: they count once.

    Examples
    --------
    >>> Memory(arguments=64, results=64, temporaries=8, aliased=64, code=2).total
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
class Compiled:
    """What the compiler made: HLO text, what `cost_analysis` says, and the memory it needs."""

    text: str
    costs: Mapping[str, float] = field(default_factory=dict)
    memory: Memory | None = None


def read_executable(program: Any) -> Compiled:
    """Return what is known of a `jax.stages.Compiled`, or of what looks like one."""
    with quiet():
        return Compiled(
            program.as_text(),
            costs_of(_silently(program.cost_analysis)),
            memory_of(_silently(program.memory_analysis)),
        )


def _silently(ask: Any) -> Any:
    """Return an answer, None where the backend has none."""
    try:
        return ask()
    except Exception:  # not offered by every backend
        return None


_WANTED = ("flops", "transcendentals", "bytes accessed", "optimal_seconds")


def costs_of(analysis: Any) -> dict[str, float]:
    """Return the totals of `cost_analysis`, whatever form it has; per-operand entries left out."""
    if isinstance(analysis, list):
        analysis = analysis[0] if analysis else {}
    return {key: float(analysis[key]) for key in _WANTED if key in (analysis or {})}


def memory_of(analysis: Any) -> Memory | None:
    """Return what `memory_analysis` says; None where it says nothing."""
    if analysis is None:
        return None
    names = ("argument", "output", "temp", "alias", "generated_code")
    numbers = [int(getattr(analysis, f"{name}_size_in_bytes", 0)) for name in names]
    return Memory(*numbers)


def bytecode(module: Any) -> bytes:
    """Return a StableHLO module as bytes, its source lines included."""
    from jax._src.interpreters import mlir

    return bytes(mlir.module_to_bytecode(module))


def compile_module(devices: Sequence[Any], module: Any, options: Any) -> Compiled:
    """Compile a module with the compiler of these devices."""
    from jaxlib import xla_client

    compile_for, there = devices[0].client.compile, xla_client.DeviceList(tuple(devices))
    try:
        program = compile_for(module, there, options)
    except TypeError:  # before JAX 0.8 it takes bytes
        program = compile_for(bytecode(module), there, options)
    text = "\n\n".join(each.to_string() for each in program.hlo_modules())
    return Compiled(
        text,
        costs_of(_silently(program.cost_analysis)),
        memory_of(_silently(program.get_compiled_memory_stats)),
    )


# --- Compile in a process of its own: a compiler that dies takes only that one along -------------

PATIENCE = 10.0
"""Seconds after which a compilation shows that it goes on."""


class Died(RuntimeError):
    """The compiler died, and its process with it."""


def compile_in_subprocess(
    code: bytes, options: bytes, places: Sequence[int], target: Mapping[str, str]
) -> Compiled:
    """Compile a module in another process.

    Parameters
    ----------
    code, options : bytes
        The module as bytecode, and the compiler's options.
    places : sequence of int
        The ids of the devices, in the order of the mesh.
    target : mapping of str to str
        "chip", "layout" and "name".

    Raises
    ------
    RuntimeError
        What the compiler said.
    Died
        It said nothing, and died.
    """
    with tempfile.TemporaryDirectory() as folder:
        asked, answer = Path(folder, "asked"), Path(folder, "answer")
        asked.write_bytes(pickle.dumps((code, options, list(places), dict(target))))
        with Path(folder, "said").open("w+b") as printed:
            done = _run(asked, answer, printed, target)
            printed.seek(0)
            heard = printed.read().decode("utf-8", "replace")
        if not answer.exists():
            raise Died(_last_words(done, heard))
        reply = json.loads(answer.read_text("utf-8"))
    if "error" in reply:
        raise RuntimeError(reply["error"])
    memory = None if reply["memory"] is None else Memory(**reply["memory"])
    return Compiled(reply["text"], reply["costs"], memory)


def _run(asked: Path, answer: Path, printed: Any, target: Mapping[str, str]) -> int:
    """Run the other process to its end, showing that it goes on; return how it ended."""
    root = str(Path(__file__).resolve().parents[2])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-m", "roofline_helpers.xla.compiler", str(asked), str(answer)]
    process = subprocess.Popen(
        command, stdout=printed, stderr=printed, stdin=subprocess.DEVNULL, env=environment
    )
    begun = time.monotonic()
    try:
        with progress() as say:
            while True:
                try:
                    return process.wait(timeout=1)
                except subprocess.TimeoutExpired:
                    taken = time.monotonic() - begun
                    if taken > PATIENCE:
                        name = target.get("name", "a program")
                        say(f"compiling {name} for {target['chip']}: {taken:.0f} s")
    finally:
        if process.poll() is None:  # interrupted
            process.kill()
            process.wait()


def _last_words(status: int, heard: str) -> str:
    """Return how a compiler died: the signal, and the last lines that tell."""
    import signal

    how = f"ended with status {status}"
    if status < 0:
        with contextlib.suppress(ValueError):
            how = f"was killed by {signal.Signals(-status).name}"
    telling = [line.strip() for line in heard.splitlines() if line.strip()]
    words = " | ".join(telling[-3:])[:600]
    return f"the compiler's process {how}" + (f": {words}" if words else "")


def main(asked: str, answer: str) -> None:
    """Compile what a file asks for, and write the answer to another."""
    from dataclasses import asdict

    from jax._src.interpreters import mlir
    from jax._src.lib.mlir import ir
    from jaxlib import xla_client

    from roofline_helpers import chips
    from roofline_helpers.xla.targets import all_devices, quiet

    code, options, places, target = pickle.loads(Path(asked).read_bytes())
    with quiet():
        there = {
            int(device.id): device
            for device in all_devices(chips.chip(target["chip"]), target["layout"])
        }
    with mlir.make_ir_context():
        module = ir.Module.parse(code)
    reply: dict[str, Any]
    try:
        made = compile_module(
            [there[place] for place in places],
            module,
            xla_client.CompileOptions.ParseFromString(options),
        )
        reply = {"text": made.text, "costs": dict(made.costs), "memory": None}
        if made.memory is not None:
            reply["memory"] = asdict(made.memory)
    except Exception as error:
        reply = {"error": str(error)}
    records.write(answer, json.dumps(reply))


# --- Compile a lowered program: here, or for chips that need not exist, if need be in a proce…

LONG = 200_000
"""Bytes of StableHLO from which on a program is compiled in a process of its own: what takes
longer than some 20 seconds, where starting one (3 seconds) doesn't matter."""


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

    `needed` and `capacity` are bytes of the memory `space`, None where the compiler doesn't say.

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
    """Turn what a compiler raises into a CannotCompile that begins with `what`."""
    try:
        yield
    except RooflineError:
        raise
    except Exception as error:
        message = f"{what}: {reason_of(error)}"
        out = "RESOURCE_EXHAUSTED" in message or "Ran out of memory" in message
        raise (DoesNotFit if out else CannotCompile)(message) from error


def executable_of(lowered: Lowered, options: Mapping[str, Any] | None = None) -> Any:
    """Return the executable of a program that is lowered for the device here, with options."""
    with compiler_errors(f"the compiler refused {lowered.name}"), quiet():
        return lowered.stage.compile(compiler_options=dict(options) if options else None)


def compile_program(lowered: Lowered) -> Compiled:
    """Compile a lowered program for what it is lowered for, and return what the compiler says."""
    if not lowered.devices:
        with progress() as say:
            say(f"compiling {lowered.name}")
            return read_executable(executable_of(lowered))
    chip = chip_of(lowered.target)
    named = lowered.target if chip is None else chip.name
    with compiler_errors(f"the compiler for {named} refused {lowered.name}"):
        target = {"chip": lowered.target, "layout": lowered.topology, "name": lowered.name}
        return compile_ahead(lowered, lowered.devices, target)


# --- for chips that need not exist ----------------------------------------------------------------


def compile_ahead(lowered: Lowered, devices: Sequence[Any], target: Mapping[str, str]) -> Compiled:
    """Compile a lowered program for devices of a topology.

    Parameters
    ----------
    lowered : Lowered
        What `lower` returns.
    devices : sequence of jax.Device
        As many as it has partitions, in the order of the mesh.
    target : mapping of str to str
        "chip" and "layout", for a process that has to make these devices again, and "name".
    """
    code = bytecode(lowered.module)
    options = _options(lowered, devices)
    if len(code) > LONG:
        places = [int(device.id) for device in devices]
        return compile_in_subprocess(code, options.SerializeAsString(), places, target)
    with progress() as say:
        say(f"compiling {target['name']} for {target['chip']}")
        with quiet():
            return compile_module(devices, lowered.module, options)


def _options(lowered: Lowered, devices: Sequence[Any]) -> Any:
    """Return the options that JAX would give the compiler."""
    import numpy as np
    from jax._src import compiler

    count = len(devices)
    options = compiler.get_compile_options(
        num_replicas=1,
        num_partitions=count,
        device_assignment=np.array(devices, dtype=object).reshape(1, count),
        env_options_overrides=dict(lowered.options) or None,
    )
    inputs, outputs = _placed(lowered.module)
    options.parameter_is_tupled_arguments = len(inputs) > 2000
    if count > 1:  # what nobody placed, the compiler may
        build = options.executable_build_options
        build.allow_spmd_sharding_propagation_to_parameters = [not each for each in inputs] or [
            True
        ]
        build.allow_spmd_sharding_propagation_to_output = [not each for each in outputs] or [True]
    return options


def _placed(module: Any) -> tuple[list[bool], list[bool]]:
    """Return of each argument and result of a module whether somebody said how it is spread."""
    main = next(
        each
        for each in module.body.operations
        if each.operation.attributes["sym_name"].value == "main"
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
    factor = {"K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4}.get(text[-1], 1)
    return float(text.rstrip("KMGT")) * factor


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
