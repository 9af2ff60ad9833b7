"""Ask the compiler: FLOPs, HBM bytes and kernels of any JAX function, for TPUs you don't own.

    report = analyze(jax.nn.softmax, jax.ShapeDtypeStruct((8192, 8192), "bfloat16"), chip="v6e")

`analyze` compiles the function with XLA and reads the compiled program with `roofline_helpers.hlo`,
whose docstring says what is counted, and how. On Linux x86-64 the TPU compiler (the package
`libtpu`, which `jax[tpu]` brings) compiles for TPU v4, v5e, v5p, v6e and v7x without any TPU.
Where it can't be installed, a committed record of the same compilation takes its place.

A report gives three times: the roofline's over the bytes and FLOPs counted here; the compiler's own
cycle estimate of each kernel at the chip's clock; and XLA's `optimal_seconds`, which exists for the
whole program only.

Tested with JAX 0.7.2, 0.10.2 and 0.12.0.1, each with the libtpu that it pins. JAX and Matplotlib
are imported when they are needed.

One file a topic: `targets` (what can be compiled for), `arguments` (described, and as shapes),
`lowering` (traced for a chip), `compiling` (the compiler, in this process or `apart`), `program`
(what it says), `analysis` (all of it, and count), `pallas` (kernels counted from what was traced;
`body`, what is in them; `tracing`, asked for alone), `kernel` and `report` (the numbers), `groups`
(of kernels), `links` (the least time of an exchange), `timeline` (when they run, and the
exchanges that overlap them), `changes` (between two reports), `costs` (by JAX's own keys),
`display` (text, HTML, table, picture), `record` (a report as a file), `stand_ins` (records in the
compiler's place).
"""

from roofline_helpers.compiled.analysis import RecordUsed, analyze
from roofline_helpers.compiled.arguments import CannotTrace
from roofline_helpers.compiled.changes import Change, Changes
from roofline_helpers.compiled.compiling import CannotCompile, DoesNotFit
from roofline_helpers.compiled.costs import Costs, cost_analysis
from roofline_helpers.compiled.groups import Group
from roofline_helpers.compiled.kernel import CompiledKernel
from roofline_helpers.compiled.program import Memory
from roofline_helpers.compiled.record import SCHEMA
from roofline_helpers.compiled.report import Report
from roofline_helpers.compiled.stand_ins import RECORD_TO, USE, recording, records
from roofline_helpers.compiled.targets import (
    DERIVED_CLOCKS,
    TOPOLOGIES,
    NoCompiler,
    can_compile,
)
from roofline_helpers.compiled.timeline import Exchange, Span, Timeline
from roofline_helpers.compiled.tracing import pallas_kernels
from roofline_helpers.hlo import Collective
from roofline_helpers.hlo.blocks import Operand, PallasKernel
from roofline_helpers.records import BadRecord

__all__ = [
    "analyze",
    "can_compile",
    "Report",
    "CompiledKernel",
    "Change",
    "Changes",
    "Costs",
    "Exchange",
    "Group",
    "Span",
    "Timeline",
    "cost_analysis",
    "Operand",
    "PallasKernel",
    "pallas_kernels",
    "Collective",
    "records",
    "recording",
    "BadRecord",
    "CannotCompile",
    "CannotTrace",
    "DoesNotFit",
    "Memory",
    "NoCompiler",
    "RecordUsed",
    "DERIVED_CLOCKS",
    "RECORD_TO",
    "SCHEMA",
    "TOPOLOGIES",
    "USE",
]
