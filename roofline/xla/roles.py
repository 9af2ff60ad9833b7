"""The role of a kernel, in its author's terms: "matmul of mlp.up, with its GELU"."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from roofline.xla import hlo
from roofline.xla.flops import PALLAS, results
from roofline.xla.hlo import Site
from roofline.xla.metadata import MARKS, Scope, SourceLine, scope_of, source_of
from roofline.xla.traffic import host_transfer

_FIRST = ("sort", "fft", "cholesky", "triangular-solve", "scatter", "gather", "select-and-scatter")
_MOVES = {
    "dynamic-update-slice": "update in place",
    "transpose": "transpose",
    "concatenate": "concatenation",
    "pad": "padding",
    "reverse": "reversal",
    "dynamic-slice": "slice",
    "slice": "slice",
    "convert": "conversion",
    "iota": "counting up",
    "broadcast": "broadcast",
    "rng-bit-generator": "random numbers",
}
_MARKING = hlo.FREE_CALLS | {"AsyncCollectiveStart", "AsyncCollectiveDone"}
_ACTIVATIONS = {"gelu": "GELU", "silu": "SiLU", "swish": "SiLU", "relu": "ReLU", "relu6": "ReLU"}


def role_of(
    site: Site, spaces: Mapping[int, str], tensors: Sequence[str] = ()
) -> tuple[str, SourceLine | None, str]:
    """Return a kernel's role, its line of code, and JAX's name for it.

    The role of a fused kernel is that of its most important part: a matmul, else an exchange, a
    call, a reduction, and so on down to its last instruction.

    Parameters
    ----------
    site : Site
        The kernel.
    spaces : mapping of int to str
        Memory spaces of its platform, by number (`hlo.SPACES`).
    tensors : sequence of str
        The program's arguments that it reads.
    """
    parts = [part for part in site.parts() if part.instruction.target not in _MARKING]
    main = _main(site, parts)
    named = _named(main, site, parts)
    op_name = named[0].instruction.op_name if named else ""
    scope = scope_of(op_name) if "/" in op_name else Scope()
    lines = (source_of(part.instruction.metadata, site.program.frames) for part in named)
    source = next((line for line in lines if line is not None), None)
    owner = [] if host_transfer(main) else _owner(scope, source, tensors, main, parts)
    text = " ".join([_operation(main, parts, spaces), *owner])
    extras = _extras(main, parts, scope)
    text += f", with {' and '.join(extras)}" if extras else ""
    step = {"backward": " (backward)", "recomputed": " (recomputed)"}.get(scope.step, "")
    return text + step, source, op_name


def _main(site: Site, parts: Sequence[Site]) -> Site:
    """Return the most important part of a kernel."""
    ranked: tuple[frozenset[str] | tuple[str, ...], ...] = (
        hlo.PRODUCTS,
        ("custom-call",),
        hlo.COLLECTIVES,
        *((opcode,) for opcode in _FIRST),
        ("reduce", "reduce-window"),
        ("dynamic-update-slice",),
        hlo.TRANSCENDENTAL,
    )
    for opcodes in ranked:
        for part in parts:
            if part.instruction.base in opcodes:
                return part
    root = site.fused.root if site.fused is not None else None
    return next((part for part in parts if part.instruction is root), parts[-1] if parts else site)


def _named(main: Site, site: Site, parts: Sequence[Site]) -> list[Site]:
    """Return the parts with JAX names, the main one first unless it is only named as a loop."""
    named = [part for part in (main, site, *parts) if part.instruction.op_name]
    return sorted(named, key=lambda part: scope_of(part.instruction.op_name).primitive in MARKS)


def _operation(main: Site, parts: Sequence[Site], spaces: Mapping[int, str]) -> str:
    """Return a kernel's operation, as a noun."""
    instruction = main.instruction
    counted = sum(part.instruction.opcode in hlo.PRODUCTS for part in parts)
    if counted:
        noun, einsum = _product(main), scope_of(instruction.op_name).einsum
        return f"{noun if counted == 1 else f'{counted} {noun}s'} {einsum}".strip()
    if host_transfer(main) is not None:
        called = scope_of(instruction.op_name).primitive or instruction.base
        way = {"send": " to the host", "recv": " from the host"}.get(
            instruction.opcode, " on the host"
        )
        return f"{called}{way}"
    if instruction.base == "custom-call":
        return _called(main)
    if instruction.base in hlo.COLLECTIVES or instruction.base in _FIRST:
        return instruction.base
    opcodes = {part.instruction.base for part in parts}
    if instruction.base in ("reduce", "reduce-window"):
        return _reduced(main, opcodes)
    if instruction.base == "dynamic-update-slice":
        return "update in place"
    done = _activation(parts)
    if done:
        return done
    counts = sorted(opcodes & (hlo.ARITHMETIC | hlo.TRANSCENDENTAL))
    if counts:
        return " and ".join(counts) if len(counts) <= 2 else "elementwise work"
    moving = [name for opcode, name in _MOVES.items() if opcode in opcodes]
    if instruction.base in ("copy", "slice") or not moving:
        return _copied(main, spaces)
    return moving[0]


def _product(main: Site) -> str:
    """Return a matmul's kind in the reader's program: TPUs write each matmul as a convolution."""
    primitive = scope_of(main.instruction.op_name).primitive
    return "convolution" if primitive == "conv_general_dilated" else "matmul"


def _copied(main: Site, spaces: Mapping[int, str]) -> str:
    """Return a copy's purpose: another memory, or another layout."""
    instruction = main.instruction
    if (
        instruction.base not in ("copy", "slice")
        or not main.operands
        or not main.operands[0].leaves
    ):
        return instruction.base
    result, operand = results(instruction).leaves[0], main.operands[0].leaves[0]
    if result.space != operand.space:
        return f"{instruction.base} to {spaces.get(result.space, 'other memory').upper()}"
    if (result.order, result.tile) != (operand.order, operand.tile):
        return "change of layout"
    return instruction.base


def _called(main: Site) -> str:
    target, name = main.instruction.target, re.sub(r"[.\d]+$", "", main.instruction.name)
    if target in PALLAS:
        noted = scope_of(main.instruction.op_name).path
        return f"Pallas kernel {noted[-1] if noted else name}"
    if target.startswith("__cublas$"):
        return "cuBLAS matmul"
    if target.startswith("__cudnn$"):
        return "cuDNN attention" if "fmha" in target else "cuDNN convolution"
    return f"custom call {target or name}"


def _reduced(main: Site, opcodes: set[str]) -> str:
    """Return a reduction's kind, by the operation that it applies."""
    exponential = opcodes & {"exponential", "exponential-minus-one"}
    applied = {
        part.opcode
        for inner in main.program.called(main.instruction, "to_apply")
        for part in inner.instructions
    }
    if exponential:
        return "softmax" if "divide" in opcodes else "sum of exponentials"
    words = {"add": "sum", "maximum": "maximum", "minimum": "minimum", "multiply": "product"}
    return next((word for opcode, word in words.items() if opcode in applied), "reduction")


def _activation(parts: Sequence[Site]) -> str:
    """Return the activation function among the parts of a kernel; "" without one."""
    calls = {call for part in parts for call in scope_of(part.instruction.op_name).calls}
    for call, name in _ACTIVATIONS.items():
        if call in calls:
            return name
    opcodes = {part.instruction.base for part in parts}
    if "logistic" in opcodes and "multiply" in opcodes:
        return "SiLU"
    if {"erf", "multiply"} <= opcodes:
        return "GELU"
    primitives = {scope_of(part.instruction.op_name).primitive for part in parts}
    return "GELU" if {"tanh", "integer_pow", "mul"} <= primitives else ""


def _owner(
    scope: Scope,
    source: SourceLine | None,
    tensors: Sequence[str],
    main: Site,
    parts: Sequence[Site],
) -> list[str]:
    """Return a kernel's owner: its scope, else its function, else an argument that it reads."""
    path = scope.path[:-1] if main.instruction.base == "custom-call" else scope.path
    if path:
        return ["of", ".".join(path)]
    program = main.program.name.removeprefix("jit_")
    if source is not None and source.function not in ("", program):
        return ["of", source.function]
    if not 1 <= len(tensors) <= 2:
        return []
    base = main.instruction.base
    word = "with" if base in hlo.PRODUCTS else "on" if any(map(_computes, parts)) else "of"
    return [word, ", ".join(tensors)]


def _extras(main: Site, parts: Sequence[Site], scope: Scope) -> list[str]:
    """Return the extra work of a matmul or a call: its activation, other scopes' work, sums."""
    if main.instruction.opcode not in hlo.PRODUCTS:
        return []
    working = [part for part in parts if _computes(part) and part is not main]
    extras = [f"its {name}" for name in [_activation(parts)] if name]
    scopes = (scope_of(part.instruction.op_name) for part in working)
    others = dict.fromkeys(
        other.path[-1] for other in scopes if other.path and other.path != scope.path
    )
    extras += list(others)[:2]
    if not extras and any(part.instruction.base == "reduce" for part in working):
        extras.append("a reduction")
    return extras


def _computes(part: Site) -> bool:
    opcode = part.instruction.base
    return opcode not in hlo.FREE and opcode not in hlo.MOVING
