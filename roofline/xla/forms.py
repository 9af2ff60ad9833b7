"""What a kernel does, and over which sizes: what its time follows, beside its bytes and FLOPs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from roofline.xla.flops import in_place, is_depthwise, library_product, results
from roofline.xla.hlo import Instruction, Shape, Site

FACTORISATIONS = {
    "cusolver_potrf": "Cholesky",
    "cusolver_getrf": "LU",
    "cusolver_geqrf": "QR",
    "cusolver_orgqr": "Q of QR",
    "cusolver_syevd": "eigenvalues",
    "cusolver_syevj": "eigenvalues",
    "cusolver_gesvd": "singular values",
    "cu_lu_pivots": "pivots",
    "__cublas$triangularSolve": "triangular solve",
}
"""Targets of custom calls, by how they begin, and what they compute."""

RANDOM = 10
"""Exclusive ors in a kernel from which on it makes random bits: Threefry has 20 for two words."""


@dataclass(frozen=True)
class Form:
    """The class of a kernel, its sizes, and the bits of an element of its narrowest operand.

    Examples
    --------
    >>> Form("sort", (1, 4096, 1)).kind
    'sort'
    """

    kind: str = ""
    sizes: tuple[int, ...] = ()
    bits: int = 0

    def __str__(self) -> str:
        return " × ".join(map(str, self.sizes)) + f" {self.kind}"


def form_of(site: Site) -> Form:
    """Return the class of a kernel and its sizes (`_form`)."""
    kind, sizes = _form(site)
    arrays = [
        leaf for shape in (*site.operands, results(site.instruction)) for leaf in shape.leaves
    ]
    return Form(kind, sizes, min((leaf.bits for leaf in arrays if leaf.dims), default=0))


def _form(site: Site) -> tuple[str, tuple[int, ...]]:
    """Return the class of a kernel and its sizes: outside, along and inside of what it goes along.

    The sizes are of a matmul or convolution m, k and n; of a reduction, a sort, a scan or an FFT
    what lies outside, along and inside of the dimension; of a factorisation its batch, its rows and
    the columns of its last operand; of attention its heads in all, its queries and the size of a
    head; of a gather or scatter the indices, the rows to choose from and the elements of each. A
    kernel of no such kind has the elements of its largest result.
    """
    parts = {part.instruction.base: part for part in site.parts()}
    call = site.instruction
    if call.base == "custom-call":
        return _called(site)
    readers: tuple[tuple[tuple[str, ...], str, Callable[[Site], tuple[int, ...]]], ...] = (
        (("dot", "convolution"), "matmul", _product),
        (("fft",), "FFT", _last),
        (("sort",), "sort", _sorted),
        (("select-and-scatter",), "scatter", _made),
        (("reduce-window",), "scan", _windowed),
        (("scan",), "", _made),  # one of its own, which nobody measured
    )
    for opcodes, name, sizes in readers:
        for opcode in opcodes:
            if opcode in parts:
                return name, sizes(parts[opcode])
    if "scatter" in parts:
        return _adding(parts["scatter"]), _scattered(parts["scatter"])
    made = sum(part.instruction.base == "xor" for part in site.parts())
    if made >= RANDOM or "rng-bit-generator" in parts:
        return "random bits", _made(site)
    if "gather" in parts:
        return "gather", _gathered(parts["gather"])
    if "reduce" in parts:
        around = _reduced(parts["reduce"])
        rewritten = 2 * _made(site)[0] >= math.prod(around)
        return "normalisation" if rewritten else "reduction", around
    turned = "transpose" in parts or (call.base == "copy" and _turns(site))
    return "transpose" if turned else "stream", _made(site)


def _called(site: Site) -> tuple[str, tuple[int, ...]]:
    call, operands = site.instruction, [shape for shape in site.operands if shape.dims]
    product = library_product(site)
    if product is not None:
        inner, lhs, rhs = product
        if inner.opcode == "dot":
            return "matmul", _sides(inner, lhs, rhs)
        name = "depthwise convolution" if is_depthwise(inner, lhs, rhs) else "convolution"
        return name, _taps(inner, lhs, rhs)
    if "fmha" in call.target and operands:
        stated = call.config.get("cudnn_fmha_backend_config", {})
        dims = [int(n) for n in stated.get("intermediate_tensor_shape", {}).get("dimensions", ())]
        name = "attention backward" if "Backward" in call.target else "attention"
        return name, (math.prod(dims[:-2]), dims[-2], operands[0].dims[-1]) if dims else ()
    if not operands:
        return "", ()
    if "cub_sort" in call.target or "TopK" in call.target:
        return "top-k" if "TopK" in call.target else "radix sort", _last(site)
    for target in FACTORISATIONS:
        if call.target.startswith(target):
            given, columns = operands[0].dims, operands[-1].dims[-1]
            square = len(given) > 1 and "pivots" not in target
            last = -2 if square else -1
            return FACTORISATIONS[target], (math.prod(given[:last]), given[last], columns)
    return "", ()


def _product(site: Site) -> tuple[int, ...]:
    lhs, rhs = site.operands[:2]
    sizes = _sides if site.instruction.opcode == "dot" else _taps
    return sizes(site.instruction, lhs, rhs)


def _sides(dot: Instruction, lhs: Shape, rhs: Shape) -> tuple[int, int, int]:
    """Return m, k and n of one matmul of a batch."""
    k = math.prod(lhs.dims[d] for d in dot.numbers("lhs_contracting_dims")) or 1
    batch = max(round(lhs.elements / k * (rhs.elements / k) / max(dot.shape.elements, 1)), 1)
    return lhs.elements // k // batch, k, rhs.elements // k // batch


def _taps(convolution: Instruction, lhs: Shape, rhs: Shape) -> tuple[int, int, int]:
    """Return m, k and n of a convolution as a matmul: positions, what each sums, channels."""
    n = rhs.dims[convolution.attributes["dim_labels"].split("_")[1].split("->")[0].index("o")]
    return convolution.shape.elements // n, rhs.elements // n, n


def _last(site: Site) -> tuple[int, ...]:
    dims = next((shape.dims for shape in site.operands if shape.dims), (1,))
    return math.prod(dims[:-1]), dims[-1], 1


def _around(shape: Shape, chosen: set[int]) -> tuple[int, int, int]:
    """Return the sizes outside, along and inside of some dimensions, as they lie in memory."""
    order = list(shape.order) if shape.order else list(range(len(shape.dims)))
    along = math.prod(shape.dims[d] for d in chosen)
    last = max((order.index(d) for d in chosen), default=len(order) - 1)
    inside = math.prod(shape.dims[d] for d in order[last + 1 :] if d not in chosen)
    return max(shape.elements, 1) // max(along * inside, 1), along, inside


def _sorted(site: Site) -> tuple[int, ...]:
    axis = (site.instruction.numbers("dimensions") or (0,))[0]
    return _around(site.operands[0], {axis})


def _reduced(site: Site) -> tuple[int, ...]:
    return _around(site.operands[0], set(site.instruction.numbers("dimensions")))


def _windowed(site: Site) -> tuple[int, ...]:
    made = results(site.instruction).leaves[0].elements
    size = site.instruction.attributes.get("window", "").partition("size=")[2].split(" ")[0]
    taps = math.prod(int(n) for n in size.strip("{}").split("x") if n)
    return made, taps, 1


def _adding(scatter: Site) -> str:
    """Return how a scatter combines what meets in one place: GPUs add 16 bits by trying again."""
    if scatter.instruction.attributes.get("unique_indices") == "true":
        return "scatter"
    applied = scatter.program.called(scatter.instruction, "to_apply")
    adds = any(part.opcode == "add" for inner in applied for part in inner.instructions)
    return "atomics of 16 bits" if adds and scatter.operands[-1].bits < 32 else "atomics"


def _scattered(site: Site) -> tuple[int, ...]:
    table, index, updates = site.operands[0], site.operands[-2], site.operands[-1]
    each = int((site.instruction.numbers("index_vector_dim") or (len(index.dims),))[0])
    count = index.elements // (index.dims[each] if each < len(index.dims) else 1)
    width = max(updates.elements // max(count, 1), 1)
    return count, max(table.elements // width, 1), width


def _gathered(site: Site) -> tuple[int, ...]:
    width = math.prod(site.instruction.numbers("slice_sizes")) or 1
    count = site.instruction.shape.elements // width
    return count, max(site.operands[0].elements // width, 1), width


def _made(site: Site) -> tuple[int, ...]:
    """Return the elements that its threads make, those of its largest result: none of a copy."""
    if site.instruction.base == "copy" and not _turns(site):
        return ()  # the copying engine's
    leaves = results(site.instruction).leaves
    if site.fused is not None and len(site.fused.results) == len(leaves):
        updates = in_place(site.program, site.fused)
        shares = [updates[name].share if name in updates else 1.0 for name in site.fused.results]
        made = zip(leaves, shares, strict=True)
        return (max((round(leaf.elements * share) for leaf, share in made), default=0),)
    return (max((leaf.elements for leaf in leaves), default=0),)


def _turns(site: Site) -> bool:
    result, operand = results(site.instruction).leaves[0], site.operands[0].leaves[0]
    return (result.order, result.dims) != (operand.order, operand.dims)
