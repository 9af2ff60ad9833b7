"""Compile a lowered program: here, or for chips that need not exist, if need be in a process apart.

The TPU compiler is C++ that can take minutes, and that has been seen to die with the process that
it runs in. So a long program is compiled by another one (`apart`), which may.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from roofline_helpers._checks import RooflineError
from roofline_helpers.compiled import apart
from roofline_helpers.compiled.arguments import reason
from roofline_helpers.compiled.lowering import Lowered
from roofline_helpers.compiled.program import Compiled, bytecode, compiled_by, read
from roofline_helpers.compiled.quiet import quiet
from roofline_helpers.show import progress

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
def errors_of(what: str) -> Iterator[None]:
    """Turn what a compiler raises into a CannotCompile that begins with `what`."""
    try:
        yield
    except RooflineError:
        raise
    except Exception as error:
        message = f"{what}: {reason(error)}"
        out = "RESOURCE_EXHAUSTED" in message or "Ran out of memory" in message
        raise (DoesNotFit if out else CannotCompile)(message) from error


def executable(lowered: Any, options: Mapping[str, Any] | None = None) -> Any:
    """Return the executable of a `jax.stages.Lowered`, for the device that it was lowered for."""
    with quiet():
        return lowered.compile(compiler_options=dict(options) if options else None)


def here(lowered: Any, name: str) -> Compiled:
    """Compile a `jax.stages.Lowered` for the device that it was lowered for, and read it."""
    with progress() as say:
        say(f"compiling {name}")
        return read(executable(lowered))


# --- for chips that need not exist ----------------------------------------------------------------


def ahead(lowered: Lowered, devices: Sequence[Any], target: Mapping[str, str]) -> Compiled:
    """Compile a lowered program for devices of a topology.

    Parameters
    ----------
    lowered : Lowered
        What `lowering.lower` returns.
    devices : sequence of jax.Device
        As many as it has partitions, in the order of the mesh.
    target : mapping of str to str
        "chip" and "layout", for a process that has to make these devices again, and "name".
    """
    code = bytecode(lowered.module)
    options = _options(lowered, devices)
    if len(code) > LONG:
        places = [int(device.id) for device in devices]
        return apart.compiled(code, options.SerializeAsString(), places, target)
    with progress() as say:
        say(f"compiling {target['name']} for {target['chip']}")
        with quiet():
            return compiled_by(devices, lowered.module, options)


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
