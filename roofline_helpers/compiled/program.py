"""A compiled program as what its compiler says of it: text, costs, memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from roofline_helpers.compiled.quiet import quiet


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


def read(program: Any) -> Compiled:
    """Return what is known of a `jax.stages.Compiled`, or of what looks like one."""
    with quiet():
        return Compiled(
            program.as_text(),
            costs(_silently(program.cost_analysis)),
            memory(_silently(program.memory_analysis)),
        )


def _silently(ask: Any) -> Any:
    """Return an answer, None where the backend has none."""
    try:
        return ask()
    except Exception:  # not offered by every backend
        return None


_WANTED = ("flops", "transcendentals", "bytes accessed", "optimal_seconds")


def costs(analysis: Any) -> dict[str, float]:
    """Return the totals of `cost_analysis`, whatever form it has; per-operand entries left out."""
    if isinstance(analysis, list):
        analysis = analysis[0] if analysis else {}
    return {key: float(analysis[key]) for key in _WANTED if key in (analysis or {})}


def memory(analysis: Any) -> Memory | None:
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


def compiled_by(devices: Sequence[Any], module: Any, options: Any) -> Compiled:
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
        costs(_silently(program.cost_analysis)),
        memory(_silently(program.get_compiled_memory_stats)),
    )
