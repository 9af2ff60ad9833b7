"""Read a program as XLA compiled it, and count the FLOPs and bytes of each kernel.

XLA prints a compiled program as HLO text. It is a list of computations; one is the ENTRY. A
computation is a list of instructions in the order in which they run:

    %fusion = bf16[2048,2048]{1,0:T(8,128)(2,1)} fusion(%a, %b), kind=kOutput, calls=%body
     name     type and shape  layout, tiles      opcode  operands    attributes

In the layout, `S(1)` means that the value is in a TPU's VMEM; without `S(…)` it is in HBM.
Everything here follows from four rules:

1. What the entry (or a loop's body) lists is a **kernel**; what a fusion calls is inside one. A
   kernel reads its operands and writes its results, each once, in the memory that their layouts
   name. What happens inside a fusion touches no memory.
2. Of an operand that is only sliced, gathered from or updated in place, the slice, the gathered
   rows or the update count, not the whole buffer. This holds inside fusions too.
3. A loop's body counts as often as the loop turns, a conditional as its most expensive branch, an
   asynchronous pair (`copy-start`, `copy-done`) once.
4. FLOPs follow from shapes. A multiply-add is two. Products of matrices (dot, convolution) are
   matrix FLOPs; of a convolution only the taps count that meet data, so that a batched product,
   which TPUs write as a dilated convolution, costs what it should, and padding costs nothing.
   Everything else is vector FLOPs: one per element for each arithmetic, comparing or selecting
   operation, on integers too; n for a sum over n elements; transcendentals (exp, tanh, rsqrt …)
   one each, and listed apart as well. Moving and converting data costs none.

These are the rules of `roofline_helpers.work`. Scalars (loop counters, predicates, indices of one
slice) are left out: neither their bytes nor the instructions on them alone count.

The package is plain Python and needs no JAX. JAX 0.7.2 to 0.12 give access to the names, opcodes
and operands of instructions (`executable.hlo_modules()[0].computations()`), but to no shapes or
attributes, so the text is read. Tested with the text of JAX 0.7.2, 0.10.2 and 0.12.0.1 for TPUs
and CPUs, and of JAX 0.11.2 for an NVIDIA H100, where calls of cuBLAS and cuDNN state what they do.

One file a topic: `text`, `shapes`, `module` and `metadata` (lines of the reader's code) read;
`opcodes`, `products`, `calls`, `needs` and
`flops` count FLOPs; `traffic` and `tiles` bytes; `loops` turns; `collectives` exchanges; `ledger`
walks over a program and puts these together, with what each kernel is called by people (`roles`,
`tensors`).

Source: the operation semantics and HloCostAnalysis of OpenXLA, https://openxla.org/xla.
"""

from roofline_helpers.hlo.collectives import Axes, Collective, axes_of_mesh, whole
from roofline_helpers.hlo.flops import Flops
from roofline_helpers.hlo.ledger import Ledger, Row, kernels, with_axes
from roofline_helpers.hlo.metadata import SourceLine
from roofline_helpers.hlo.module import Computation, Instruction, Module, parse
from roofline_helpers.hlo.opcodes import (
    ARITHMETIC,
    COLLECTIVES,
    FREE,
    FREE_CALLS,
    MOVING,
    TRANSCENDENTAL,
    UnknownInstruction,
)
from roofline_helpers.hlo.products import matrix_flops
from roofline_helpers.hlo.shapes import SPACES, Shape, is_tiled
from roofline_helpers.hlo.text import UnreadableProgram, brief

TESTED_WITH = ("0.7.2", "0.10.2", "0.12.0.1")
"""JAX versions whose HLO text the tests hold this reader against."""

__all__ = [
    "TESTED_WITH",
    "UnknownInstruction",
    "UnreadableProgram",
    "SPACES",
    "Shape",
    "is_tiled",
    "Instruction",
    "Computation",
    "Module",
    "parse",
    "TRANSCENDENTAL",
    "ARITHMETIC",
    "MOVING",
    "FREE",
    "COLLECTIVES",
    "FREE_CALLS",
    "SourceLine",
    "Flops",
    "matrix_flops",
    "Axes",
    "Collective",
    "axes_of_mesh",
    "whole",
    "Row",
    "Ledger",
    "kernels",
    "with_axes",
    "brief",
]
