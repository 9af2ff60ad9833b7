"""Ask the compiler: FLOPs, HBM bytes and kernels of any JAX function, for TPUs you don't own.

::

    report = analyze(jax.nn.softmax, jax.ShapeDtypeStruct((8192, 8192), "bfloat16"), chip="v6e")

`analyze` compiles the function with XLA and reads the compiled program by the rules below. On
Linux x86-64 the TPU compiler (the package `libtpu`, a dependency of `jax[tpu]`) compiles for TPU
v4, v5e, v5p, v6e and v7x without any TPU. Where it can't be installed, a committed record of the
same compilation is used instead; also where it refuses a program, and a warning says so.

A report gives three times: the roofline's, from the bytes and FLOPs counted here; the compiler's
own cycle estimate of each kernel at the chip's clock; and XLA's `optimal_seconds`, for the whole
program only.

Tested with JAX 0.7.2, 0.10.2 and 0.12.0.1, each with the libtpu that it pins, and 0.7.2 also with
Colab's older one, which can't read Pallas kernels. JAX and Matplotlib are imported when they are
needed.

One file per topic: `lower` (from a function to a lowered program), `compiler`, `targets` (what can
be compiled for), `analysis` (all of it, or a record without the compiler); `hlo` and `metadata`
(HLO as data, lines of the reader's code), `flops`, `traffic`, `loops`, `collectives`, `pallas` and
`body` (the counts), `ledger` (a walk over a program), `roles` (kernels in words); `kernel` (one
kernel under its roofline, groups, when they run), `report`, `changes`, `display`.

How a compiled program is read
------------------------------
XLA prints a compiled program as HLO text. It is a list of computations; one is the ENTRY. A
computation is a list of instructions in the order in which they run::

    %fusion = bf16[2048,2048]{1,0:T(8,128)(2,1)} fusion(%a, %b), kind=kOutput, calls=%body
     name     type and shape  layout, tiles      opcode  operands    attributes

In the layout, `S(1)` means that the value is in a TPU's VMEM; without `S(…)` it is in HBM.
Everything here follows from four rules:

1. Each instruction of the entry (or of a loop's body) is a **kernel**; a fusion's computation is
   inside one. A kernel reads its operands and writes its results, each once, in the memory that
   their layouts name. Instructions inside a fusion touch no memory.
2. If an operand is only sliced, gathered from or updated in place, the slice, the gathered rows or
   the update count, not the whole buffer. This holds inside fusions too.
3. A loop's body counts once per iteration, a conditional as its most expensive branch, an
   asynchronous pair (`copy-start`, `copy-done`) once.
4. FLOPs follow from shapes. A multiply-add is two. Matmuls (dot, convolution) are matrix FLOPs. In
   a convolution only the taps that meet data count: TPUs write a batched matmul as a dilated
   convolution, whose padding does no work.
   Everything else is vector FLOPs: one per element for each arithmetic, comparing or selecting
   operation, on integers too; n for a sum over n elements; transcendentals (exp, tanh, rsqrt …)
   one each, and listed separately too. An operation on complex numbers counts as one. Moving and
   converting data costs none.

These are the rules of `roofline_helpers.work`. Scalars (loop counters, predicates, indices of one
slice) are left out: neither their bytes nor the instructions on them alone count.

The package is plain Python and needs no JAX. JAX 0.7.2 to 0.12 give access to the names, opcodes
and operands of instructions (`executable.hlo_modules()[0].computations()`), but to no shapes or
attributes, so the text is read. Tested with the text of JAX 0.7.2, 0.10.2 and 0.12.0.1 for TPUs
and CPUs, and of JAX 0.11.2 for an NVIDIA H100, where calls of cuBLAS and cuDNN state what they do.

Source: the operation semantics and HloCostAnalysis of OpenXLA, https://openxla.org/xla.
"""

from __future__ import annotations

from roofline.xla.analysis import analyze, records
from roofline.xla.collectives import CollectiveOp as CollectiveOp
from roofline.xla.compiler import CannotCompile, DoesNotFit
from roofline.xla.flops import Flops as Flops
from roofline.xla.hlo import Module as Module
from roofline.xla.hlo import Shape as Shape
from roofline.xla.hlo import parse as parse
from roofline.xla.ledger import Ledger as Ledger
from roofline.xla.ledger import Row as Row
from roofline.xla.ledger import kernels
from roofline.xla.lower import CannotTrace, pallas_kernels
from roofline.xla.pallas import PallasKernel
from roofline.xla.report import Report
from roofline.xla.targets import TOPOLOGIES as TOPOLOGIES
from roofline.xla.targets import NoCompiler
from roofline.xla.targets import can_compile as can_compile

# The public names; other imports here are for the package's other rooms
__all__ = [
    "CannotCompile",
    "CannotTrace",
    "DoesNotFit",
    "NoCompiler",
    "PallasKernel",
    "Report",
    "analyze",
    "kernels",
    "pallas_kernels",
    "records",
]
