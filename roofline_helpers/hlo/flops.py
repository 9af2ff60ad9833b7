"""FLOPs of one instruction, by unit."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from roofline_helpers.hlo import needs
from roofline_helpers.hlo.calls import declared, library_product
from roofline_helpers.hlo.module import Computation, Instruction, Site
from roofline_helpers.hlo.opcodes import (
    APPLYING,
    ARITHMETIC,
    FREE,
    FREE_CALLS,
    MOVING,
    PRODUCTS,
    TRANSCENDENTAL,
    UnknownInstruction,
)
from roofline_helpers.hlo.products import matrix_flops, operand_types, sides, windows
from roofline_helpers.hlo.shapes import Shape


@dataclass(frozen=True)
class Flops:
    """FLOPs by unit. `declared` are those that a custom call states without naming a unit.

    Examples
    --------
    >>> (Flops(matrix=8, vector=2) + Flops(vector=3)).vector
    5
    """

    matrix: int | float = 0
    vector: int | float = 0
    transcendentals: int | float = 0
    declared: int | float = 0
    unknown: tuple[str, ...] = ()

    def __add__(self, other: Flops) -> Flops:
        return Flops(
            self.matrix + other.matrix,
            self.vector + other.vector,
            self.transcendentals + other.transcendentals,
            self.declared + other.declared,
            self.unknown + other.unknown,
        )

    def __mul__(self, times: float) -> Flops:
        return Flops(
            self.matrix * times,
            self.vector * times,
            self.transcendentals * times,
            self.declared * times,
            self.unknown,
        )


def flops_of(site: Site, share: float = 1) -> Flops:
    """Return the FLOPs of an instruction of which a `share` of the elements is needed.

    Raises
    ------
    UnknownInstruction
        Its opcode is not known here.
    """
    each, opcode = site.instruction, site.instruction.base
    n = each.shape.leaves[0].elements if each.shape.leaves else 0
    if opcode == "fusion":
        return _fused(site, share)
    if opcode in FREE or opcode in MOVING:
        return Flops()
    if opcode in ARITHMETIC:
        return Flops(vector=n) * share
    if opcode in TRANSCENDENTAL:
        return Flops(vector=n, transcendentals=n) * share
    if opcode in PRODUCTS:
        lhs, rhs = site.operands[:2]
        return Flops(matrix=matrix_flops(each, lhs, rhs)) * share
    if opcode in APPLYING:
        return _applied(site) * share
    if opcode == "custom-call":
        return _of_call(site)
    return _of_algebra(site)


def _products(site: Site) -> Iterator[tuple[Instruction, Shape, Shape]]:
    for part in site.parts():
        if part.instruction.opcode in PRODUCTS:
            yield part.instruction, part.operands[0], part.operands[1]
        elif part.instruction.opcode == "custom-call":
            product = library_product(part)
            if product is not None:
                yield product


def matrix_types(site: Site) -> tuple[str, ...]:
    """Return the types and the precision of a kernel's products: "bf16", "f32 highest"."""
    types = (operand_types(each, operands) for each, *operands in _products(site))
    return tuple(dict.fromkeys(types))


def matmul_sides(site: Site) -> tuple[int, ...]:
    """Return m, n and k of a kernel's only product, if that is of two matrices."""
    found = [sides(*product) for product in _products(site)]
    return found[0] if len(found) == 1 else ()


REAL = frozenset({"real", "imag", "complex"})  # these take complex numbers apart
_COMPUTING = (ARITHMETIC | TRANSCENDENTAL | PRODUCTS | {"reduce", "reduce-window"}) - REAL


def is_complex(site: Site) -> bool:
    """Return whether it computes with complex numbers, whose real operations are not counted."""
    leaves = (leaf for shape in site.operands for leaf in shape.leaves)
    return site.instruction.opcode in _COMPUTING and any(
        leaf.dtype in ("c64", "c128") for leaf in leaves
    )


def _fused(site: Site, share: float) -> Flops:
    inner = site.program.called(site.instruction, "calls")[0]
    needed = needs.of_values(site.program, inner, share)
    total = Flops()
    for part in inner.instructions:
        total += flops_of(Site(site.program, inner, part), needed[part.name])
    return total


def _once(site: Site, inner: Computation) -> Flops:
    """Return the FLOPs of applying a small computation once."""
    total = Flops()
    for part in inner.instructions:
        total += flops_of(Site(site.program, inner, part))
    return total


def _applied(site: Site) -> Flops:
    """Return the FLOPs of an instruction that applies a small computation many times."""
    each, operands = site.instruction, site.operands
    operand = operands[0]
    per = Flops()
    for inner in site.program.called(each, "to_apply", "scatter"):
        per += _once(site, inner)
    if each.opcode == "reduce":
        return per * operand.elements
    if each.opcode == "map":
        return per * each.shape.elements
    if each.opcode == "scatter":  # operands, indices, updates
        return per * operands[-(len(operands) // 2)].elements
    if each.opcode == "reduce-window":
        return per * _windowed(each, operand)
    if each.opcode == "select-and-scatter":  # a compare for each tap, an add for each window
        source = operands[1]
        return Flops(vector=math.prod(_taps(each, operand, source))) + per * source.elements
    axis = (each.numbers("dimensions") or (0,))[0]  # sort: ⌈log₂ n⌉ compares an element
    return per * (operand.elements * math.ceil(math.log2(max(operand.dims[axis], 2))))


def _taps(each: Instruction, operand: Shape, out: Shape) -> list[int]:
    """Return the taps of each dimension of a window that moves over an operand."""
    moving = windows(each, len(out.dims))
    sizes = zip(moving, operand.dims, out.dims, strict=True)
    return [window.taps(size, positions) for window, size, positions in sizes]


def _windowed(each: Instruction, operand: Shape) -> int:
    """Return the elements that a reduce-window takes in.

    Where every window holds the whole dimension, it is one reduction, kept as a broadcast (v7x
    writes the maximum of a softmax so): its elements count once.
    """
    out = each.shape.leaves[0]
    sizes = zip(_taps(each, operand, out), operand.dims, out.dims, strict=True)
    return math.prod(size if taps == size * positions else taps for taps, size, positions in sizes)


_ALGEBRA: Mapping[str, Callable[[int, int, int], float]] = {
    "Cholesky": lambda many, m, n: many * n**3 / 3,
    "LuDecompositionBlock": lambda many, m, n: many * (m * n**2 - n**3 / 3),
    "QrDecompositionBlock": lambda many, m, n: many * (2 * m * n**2 - 2 * n**3 / 3),
    "CompactWyHelper": lambda many, m, n: many * n**3 / 3,
    "InvertDiagBlocksLowerTriangular": lambda many, m, n: many * n**3 / 3,
    "InvertDiagBlocksUpperTriangular": lambda many, m, n: many * n**3 / 3,
}
"""FLOPs of the TPU's own calls of linear algebra, for so many m × n matrices, by the textbooks:
G. Golub, C. Van Loan, Matrix Computations, 4th ed., sections 3.2 (LU), 4.2 (Cholesky) and 5.2 (QR);
a triangle of n takes n³/3 to invert, and n³/3 to become the T of a product of reflections."""


def _sides(site: Site) -> tuple[int, int, int]:
    """Return how many matrices a call of linear algebra takes, and their rows and columns."""
    dims = max((shape.dims for shape in site.operands), key=lambda dims: (len(dims) > 1, dims))
    *many, m, n = dims if len(dims) > 1 else (1, *dims)
    return math.prod(many), max(m, n), min(m, n)


def _of_call(site: Site) -> Flops:
    """Return what a custom call declares; undeclared is unknown, never 0."""
    each = site.instruction
    if each.target in FREE_CALLS or each.target.startswith("X64"):  # X64…: split and join numbers
        return Flops()
    if each.target in _ALGEBRA:
        return Flops(vector=_ALGEBRA[each.target](*_sides(site)))
    cost = declared(each)
    if cost is None:
        product = library_product(site)
        if product is not None:
            return Flops(matrix=matrix_flops(*product))
        return Flops(unknown=(each.name if each.target == "tpu_custom_call" else each.target,))
    return Flops(
        declared=float(cost.get("flops", 0)),
        vector=float(cost.get("transcendentals", 0)),
        transcendentals=float(cost.get("transcendentals", 0)),
    )


def _of_algebra(site: Site) -> Flops:
    """Return the FLOPs of a Fourier transform or of linear algebra, by the textbooks' counts."""
    each = site.instruction
    first = site.operands[0] if site.operands else each.shape
    side = first.dims[-1] if first.dims else 1
    if each.opcode == "fft":  # 5 n log₂ n
        points = math.prod(each.numbers("fft_length")) or 1
        return Flops(vector=5 * each.shape.elements * math.log2(max(points, 1)))
    if each.opcode == "cholesky":
        return Flops(vector=first.elements * side / 3)
    if each.opcode == "triangular-solve":
        return Flops(vector=each.shape.elements * side)
    raise UnknownInstruction(
        f"opcode {each.base!r} of {each.name} is not known to roofline_helpers.hlo"
    )
