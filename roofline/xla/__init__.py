"""Ask the compiler: FLOPs, HBM bytes and kernels of any JAX function, for TPUs you don't own.

::

    report = analyze(jax.nn.softmax, jax.ShapeDtypeStruct((8192, 8192), "bfloat16"), chip="v6e")

`analyze` compiles the function with XLA and counts the compiled program. On Linux x86-64 the TPU
compiler (`libtpu`, a dependency of `jax[tpu]`) needs no TPU. Where it can't be installed, or
refuses a program, a committed record of the same compilation stands in, and a warning says so.

A report has three times: the roofline's, the compiler's cycles at the chip's clock, and XLA's
`optimal_seconds`, for the whole program only. Tested with JAX 0.7.2, 0.10.2 and 0.12.0.1.

How a compiled program is read
------------------------------
XLA prints a compiled program as HLO text: computations, one of them the ENTRY, each a list of
instructions in the order in which they run::

    %fusion = bf16[2048,2048]{1,0:T(8,128)(2,1)} fusion(%a, %b), kind=kOutput, calls=%body
     name     type and shape  layout, tiles      opcode  operands    attributes

`S(1)` in a layout means a TPU's VMEM; without `S(…)` a value is in HBM. Four rules count it:

1. Each instruction of the entry, or of a loop's body, is a **kernel**. It reads its operands and
   writes its results, each once, in the memory that their layouts name. What it fuses touches no
   memory.
2. Of an operand that is only sliced, gathered from or updated in place, the slice, the gathered
   rows or the update count, also inside fusions.
3. A loop's body counts once per iteration, a conditional as its most expensive branch, an
   asynchronous pair (`copy-start`, `copy-done`) once.
4. FLOPs follow from shapes. Matmuls (dot, convolution) are matrix FLOPs, two per multiply-add, and
   only the taps of a convolution that meet data count: TPUs write a batched matmul as a dilated
   convolution. All else is vector FLOPs: one per element for arithmetic, comparing, selecting and
   for a transcendental (listed separately too), n for a sum over n elements, none for moving or
   converting. A complex operation counts as the real ones that it takes.

Scalars (loop counters, predicates, indices of one slice) are left out. These are the rules of
`roofline_helpers.work`.

Files, in the order of the work: `lower`, `targets` and `compiler` (from a function to a program's
text; JAX gives access to no shapes and attributes of it), `hlo` and `metadata` (the text as data,
lines of the reader's code), `flops`, `traffic`, `loops`, `collectives`, `pallas` and `body` (the
counts), `ledger` (a walk over a program), `roles` (kernels in words) and `buffers` (what fills
memory), `kernel` (its roofline, groups, waits), `expected`, `causes` (what a finding is), `report`,
`changes`, `display`; `analysis` is all of it, or a record.

Beside it a program is read as a `graph` of values, with two walks over it: `facts` (what is known
of each before it runs: zeros, masks, counters, types) and `needs` (which part of each any result
needs), both in terms of `parts` of arrays, which `products` carries through matmuls. `minimum`
takes them to the program as JAX wrote it: what its result needs at least.

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
from roofline.xla.minimum import Needed as Needed
from roofline.xla.minimum import needed as needed
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
