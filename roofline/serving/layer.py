"""The operations of one layer on one device, as they are collected."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from roofline.serving.setting import Sizes, split
from roofline_helpers import work
from roofline_helpers.common.dtypes import nbytes
from roofline_helpers.models.layers import Block
from roofline_helpers.work import Work

COSTS = {
    "RoPE": 3,  # × cos, other half × sin, add
    "quantise": 2,  # × 1/scale, round
    "top-k": 6,  # softmax, compare
}
"""FLOPs per element of operations missing from `work.COSTS`. Quantisation scales are static."""

WEIGHTS, STATES = "Wγ", "KVS"
"""First letters of a tensor's name that say its role: weights; cache and states. All of them stay
in memory from step to step."""


def weight(tensor: str) -> bool:
    """Return whether a tensor is a weight."""
    return tensor[0] in WEIGHTS


def stored(tensor: str) -> bool:
    """Return whether a tensor stays in the main memory between steps: weights and cache."""
    return tensor[0] in WEIGHTS + STATES


def scales(shape: tuple[int, int], dtype: str, group: int) -> int:
    """Return the bytes of the scales of a matrix of weights, of two bytes each.

    Of int8 every column has one, of int4 every `group` of a column's rows. Other types have theirs
    in `BITS`. `shape` is rows, over which a matmul sums, and columns.
    """
    rows, columns = shape
    each_column = {"int8": 1, "int4": split(rows, group)}
    return 2 * columns * each_column.get(dtype, 0)


@dataclass
class Layer:
    """Collects the operations of a layer in order, each as a kernel of its own.

    Tensors that stay in memory begin with a letter of `WEIGHTS` or `STATES`.
    """

    sizes: Sizes
    block: Block
    ops: dict[str, Work] = field(default_factory=dict)
    narrowed: set[str] = field(default_factory=set)

    def norm(self, op: str, x: str, y: str, tag: str) -> None:
        """Add a norm of the tokens."""
        s = self.sizes
        self.ops[op] = work.rmsnorm(s.tokens, s.model.d_model, s.half, x=x, y=y, tag=tag)

    def quantise(self, op: str, tensor: str, rows: int, width: int, *weights: str) -> None:
        """Add the quantisation of a tensor, if matmuls with such weights read a narrow one."""
        s = self.sizes
        if any(s.reads_narrow(dtype) for dtype in weights):
            reads, writes = {tensor: s.half}, {f"{tensor}, narrow": s.activations}
            self.ops[op] = work.elementwise(rows * width, reads, writes, COSTS["quantise"], s.half)
            self.narrowed.add(tensor)

    def handed(self, tensor: str) -> tuple[str, str]:
        """Return the name and the type of a tensor as a matmul reads it."""
        if tensor in self.narrowed:
            return f"{tensor}, narrow", self.sizes.activations
        return tensor, self.sizes.half

    def project(
        self,
        op: str,
        x: str,
        weight: str,
        k: int,
        outs: Mapping[str, int],
        dtype: str = "",
        rows: int = 0,
    ) -> None:
        """Add a matmul of k columns of x with a matrix whose columns are several tensors.

        Without a `dtype` it is one around attention, without `rows` each token has one.
        """
        rows, half = rows or self.sizes.tokens, self.sizes.half
        dtype = dtype or self.sizes.projections
        name, read = self.handed(x)
        names = (name, f"W {weight}", "out")
        job = work.matmul(rows, sum(outs.values()), k, read, b=dtype, out=half, names=names)
        writes = {y: nbytes(rows * width, half) for y, width in outs.items()}
        reads = {**job.reads}
        if scaled := scales((k, sum(outs.values())), dtype, self.sizes.group):
            reads[f"W {weight}, scales"] = scaled
        self.ops[op] = replace(job, reads=reads, writes=writes)

    def add(self, op: str, *terms: str, to: str) -> None:
        """Add the sum of several tensors of the tokens."""
        s = self.sizes
        reads = dict.fromkeys(terms, s.half)
        elements, flops = s.tokens * s.model.d_model, len(terms) - 1
        self.ops[op] = work.elementwise(elements, reads, {to: s.half}, flops, s.half)
