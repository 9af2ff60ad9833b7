"""Traffic and work that could be saved: tensors written and read again, recomputation, sorts."""

from __future__ import annotations

import re
from collections.abc import Sequence

from roofline import xla
from roofline.diagnosis.findings.arithmetic import PASSED, first_of, origins
from roofline.diagnosis.findings.causes import Case, Cause, Check, Claim, Claims, whole
from roofline.diagnosis.program import Program
from roofline.diagnosis.rows import TimedRow
from roofline.xla.flops import results
from roofline.xla.hlo import ARITHMETIC, TRANSCENDENTAL

RECOMPUTED = Cause(
    "recomputed",
    "values are computed again, since memory is short",
    "give the program less to keep (a smaller batch, a jax.checkpoint policy of your own), or "
    "donate what it replaces",
    "notebooks/where-the-time-goes",
)
_REMAT = re.compile(r"\.remat\d*(\.|$)")


def recomputed(case: Case) -> Claims:
    """Yield kernels that the compiler runs twice, since their results took too much memory."""
    for row in case.kernels:
        if _REMAT.search(row.name):
            yield whole(RECOMPUTED, row, f"{row.title} runs again, since memory is short")


# --- chains ---------------------------------------------------------------------------------------

UNFUSED = Cause(
    "unfused",
    "a chain of elementwise operations is more than one kernel",
    "put it into one jit, without optimization_barrier and without returning what is between",
    "notebooks/fusion",
)
_POINTWISE = ARITHMETIC | TRANSCENDENTAL | {"convert", "broadcast", "iota", "reshape", "copy"}


def chains(case: Case) -> Claims:
    """Yield elementwise kernels that only other elementwise kernels read: one would do."""
    for row in filter(_pointwise, case.kernels):
        program, readers = case.program(row), case.readers(row)
        every = len(readers) == len(program.readers.get(row.name, []))
        if not readers or not every or program.returned(row.name):
            continue
        if not all(map(_pointwise, readers)):
            continue
        written = program.sites[row.name].instruction.shape
        size = float(written.bytes)
        parts = [(row, case.without_bytes(row, written=size))]
        parts += [(reader, case.without_bytes(reader, read=size)) for reader in readers]
        after = ", ".join(reader.title for reader in readers[:2])
        evidence = f"{written} is written for {after} to read"
        yield Claim(UNFUSED, tuple(parts), evidence, source=readers[-1].source or row.source)


def _pointwise(row: TimedRow) -> bool:
    opcodes = set(row.kernel.operations)
    return opcodes <= _POINTWISE and bool(opcodes & (ARITHMETIC | TRANSCENDENTAL))


# --- scores ---------------------------------------------------------------------------------------

SCORES = Cause(
    "scores",
    "attention scores are written to memory and read again",
    "work through them block by block: fused attention",
    "notebooks/fused-attention",
)
ATTENTION = Cause(
    "attention",
    "attention runs as separate matmuls where one kernel could do it",
    "jax.nn.dot_product_attention with implementation cudnn on an NVIDIA GPU, splash "
    "attention on a TPU",
    "notebooks/fused-attention",
    {"gpu": Check(1.09, 1.14, "2 pairs of programs timed on an H200")},
)


def scores(case: Case) -> Claims:
    """Yield matmuls whose result goes through a softmax in memory to another matmul."""
    for row, _, part in case.products():
        product = results(part.instruction)
        factors = sum(shape.bytes for shape in part.operands[:2])
        if not product.elements or product.bytes <= 0.5 * factors:
            continue
        scored = product.leaves[0]
        members = _through_softmax(case, row, scored.elements)
        parts = []
        for member in members:
            read, written = _moved(case, member, scored.elements, members)
            parts.append((member, case.without_bytes(member, read, written)))
        half = any(kind.startswith(("bf16", "f16")) for kind in row.kernel.matrix_types)
        cause = ATTENTION if case.platform == "gpu" and half else SCORES
        evidence = f"scores {scored} pass through {len(members)} kernels"
        yield Claim(cause, tuple(parts), evidence)


def _through_softmax(case: Case, row: TimedRow, size: int) -> list[TimedRow]:
    """Return the kernels that scores pass through, from one matmul to the next.

    None unless there is an exponential and a reduction along rows among them.
    """
    program = case.program(row)
    members, edge, ends = [row], [row], False
    for _ in range(5):
        following: list[TimedRow] = []
        for writer in edge:
            if size in _written(program, writer) or writer is row:
                following += [r for r in case.readers(writer) if r not in members + following]
        # the matmuls that end a loss are its gradient's
        ends = ends or any(
            reader.kernel.matrix_types and reader.kernel.step != "backward" for reader in following
        )
        members += following
        edge = [reader for reader in following if not reader.kernel.matrix_types]
    touching = [m for m in members if size in _written(program, m) + _read(program, m)]
    # On a TPU its own kernel includes the second matmul; a GPU's so named kernels may be a norm's
    if case.platform == "tpu" and any("softmax" in m.name for m in touching):
        return touching
    summed = any(_sums_exponentials(program, m.name, size) for m in touching)
    return touching if ends and summed else []


def _sums_exponentials(program: Program, kernel: str, size: int) -> bool:
    """Return whether a kernel sums exponentials along rows, as a softmax does.

    The sum of squares of a norm, and the exponential of a gate, are none.
    """
    for part in program.instructions(kernel):
        reduce = part.instruction
        if reduce.opcode in ("reduce", "reduce-window") and part.operands[0].elements == size:
            summed = origins(program, kernel, part.where, reduce.operands[0])
            if first_of(summed, "exponential", PASSED | {"transpose", "select"}) is not None:
                return True
    return False


def _written(program: Program, row: TimedRow) -> list[int]:
    """Return the number of elements of each array that a kernel writes."""
    return [leaf.elements for leaf in program.sites[row.name].instruction.shape.leaves]


def _read(program: Program, row: TimedRow) -> list[int]:
    return [leaf.elements for v in program.reads(row.name) for leaf in v.shape.leaves]


def _moved(
    case: Case, row: TimedRow, size: int, members: Sequence[TimedRow]
) -> tuple[float, float]:
    """Return the bytes of score-sized arrays that a kernel reads and writes, per launch."""
    program, kernel = case.program(row), row.kernel
    names = {member.name for member in members}
    read = sum(
        value.shape.bytes
        for value in program.reads(row.name)
        if value.kind == "kernel" and value.name in names and value.shape.elements == size
    )
    shape = program.sites[row.name].instruction.shape
    written = sum(leaf.bytes for leaf in shape.leaves if leaf.elements == size)
    return float(min(read, kernel.read_bytes)), float(min(written, kernel.written_bytes))


# --- moved by rows --------------------------------------------------------------------------------

GATHER = Cause(
    "gather",
    "a gather or scatter moves single rows below the memory's rate",
    "move longer rows, or sort the indices, so that neighbours lie together",
    "notebooks/where-the-time-goes",
)
COLLISIONS = Cause(
    "collisions",
    "a scatter combines many values at the same places",
    "combine them before: sort by place once, and say indices_are_sorted=True if they are; for few "
    "places a one-hot matmul may be faster",
    "notebooks/where-the-time-goes",
)


def gathers(case: Case) -> Claims:
    """Yield gathers and scatters that take more than twice their roof."""
    for row, _, part in case.parts():
        moving = part.instruction
        if moving.opcode == "sort" and moving.op_name.rpartition("/")[2].startswith("scatter"):
            yield whole(COLLISIONS, row, f"{row.title} brings equal places of a scatter together")
        if moving.opcode not in ("gather", "scatter") or not case.slow(row):
            continue
        scatters = moving.opcode == "scatter"
        moved: xla.Shape = part.operands[-1] if scatters else moving.shape
        evidence = f"{moving.opcode} of {moved} in {part.operands[0]}"
        # more values than places: some of them certainly meet
        crowded = scatters and moved.elements > part.operands[0].elements
        yield Claim(COLLISIONS if crowded else GATHER, ((row, row.lost),), evidence)


# --- more than was asked for ----------------------------------------------------------------------

SORT = Cause(
    "sort",
    "a whole array is sorted for its first or last few elements",
    "jax.lax.top_k (of the negated array for the smallest), or jax.lax.approx_max_k",
    "notebooks/where-the-time-goes",
)


def sorts(case: Case) -> Claims:
    """Yield sorts of which the program uses a small part: the largest or smallest few."""
    for row, program, part in case.parts():
        if part.instruction.opcode != "sort" or program.returned(row.name):
            continue
        if part.instruction.op_name.endswith("top_k"):  # how XLA makes it of short rows
            continue
        taken, along = part.operands[0], part.instruction.numbers("dimensions")[0]
        readers, length = program.readers.get(row.name, []), taken.dims[along]
        used = [_used(program, reader.name, taken, along) for reader in case.readers(row)]
        if used and len(used) == len(readers) and max(used) <= length / 4:
            evidence = f"{taken} is sorted, and {max(used):,} of each {length:,} are used"
            yield whole(SORT, row, evidence)


def _used(program: Program, reader: str, taken: xla.Shape, along: int) -> int:
    """Return the number of sorted elements that a kernel reads, along the sorted dimension."""
    slices = [
        part.instruction.shape.dims[along]
        for part in program.instructions(reader)
        if part.instruction.opcode == "slice" and part.operands[0].dims == taken.dims
    ]
    return max(slices, default=taken.dims[along])
