"""What a finding is, and the closed list of causes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from roofline_helpers import xla
from roofline_helpers.device.ceilings import Ceilings
from roofline_helpers.device.program import Program
from roofline_helpers.device.rows import KERNEL, TimedRow

if TYPE_CHECKING:
    import pandas


LEAST_SHARE = 0.01
"""Findings that cost less than this share of the call aren't made: they explain nothing."""


class Check(NamedTuple):
    """What pairs of programs, with a cause and without, gained: shares of the claimed seconds.

    Examples
    --------
    >>> Check(0.83, 2.03, "6 pairs of programs timed on an H200").high
    2.03
    """

    low: float
    high: float
    how: str


@dataclass(frozen=True)
class Cause:
    """One member of the closed list.

    Parameters
    ----------
    key : str
        Its short name.
    title : str
        What is wrong, as a sentence without its end.
    advice : str
        What to try.
    chapter : str
        The page that teaches it, by its address in the book.
    checked : mapping of str to Check
        What removing it gained, by platform ("cpu", "gpu", "tpu"); empty where nobody tried.

    Examples
    --------
    >>> CAUSES["host"].title
    'the device waits for the host'
    """

    key: str
    title: str
    advice: str
    chapter: str
    checked: Mapping[str, Check] = field(default_factory=dict)


def _causes(*listed: Cause) -> Mapping[str, Cause]:
    return {cause.key: cause for cause in listed}


LAST = (
    Cause(
        "below-roof",
        "a kernel is far below its roof",
        "time it alone with these shapes, then change one thing: its layout, its type, its sizes, "
        "or another way to write it (a library's kernel, Pallas)",
        "notebooks/where-the-time-goes",
    ),
    Cause(
        "memory-bound",
        "a kernel is near its roof, bound by memory",
        "move fewer bytes: fuse it with its neighbours, store a narrower type, or do more with "
        "each byte (a larger batch)",
        "notebooks/fusion",
    ),
    Cause(
        "compute-bound",
        "a kernel is near its roof, bound by the matrix unit",
        "ask for fewer FLOPs, or a narrower type where this chip is faster in it",
        "notebooks/hardware-comparison",
    ),
    Cause(
        "vector-bound",
        "a kernel is near its roof, bound by the vector unit",
        "do less per element (fewer exponentials and divisions), or write sums of products as "
        "matmuls",
        "notebooks/limitations",
    ),
    Cause(
        "depends",
        "a kernel is near its roof, and what bounds it depends",
        "time it on the chip: a note says what the program alone can't tell, the blocks that data "
        "choose or a peak that nobody publishes",
        "notebooks/compiler-fusion",
    ),
    Cause(
        "launch-bound",
        "a kernel does less than a launch takes",
        "do more in each launch: fuse it, batch it, or unroll the loop around it",
        "notebooks/limitations",
    ),
    Cause(
        "no-roof",
        "a kernel has no roof that is known here",
        "give ceilings= for this device, or hlo= with the program of a trace",
        "notebooks/where-the-time-goes",
    ),
)
"""Last findings: what is left where no cause on the list explains the kernel that takes longest."""

CAUSES = _causes(
    Cause(
        "layout-copy",
        "an array is copied into another layout",
        "store it in the order in which the matmul reads it, or write the matmul for the order "
        "that is there (einsum names the axes)",
        "notebooks/decode-step-made-fast",
        {"gpu": Check(1.05, 1.08, "2 pairs of programs timed on an H200")},
    ),
    Cause(
        "reshape",
        "a reshape moves an array, since its tiles change",
        "leave the last two dimensions as they are, or reshape the smaller array: the weights",
        "notebooks/decode-step-made-fast",
    ),
    Cause(
        "relaid-weights",
        "stacked weights are laid out anew before the loop that slices them",
        "unroll the loop: jax.lax.scan(…, unroll=True), or the layers as a Python loop",
        "notebooks/decode-step-made-fast",
    ),
    Cause(
        "scan-copy",
        "a loop copies a slice of its stacked inputs or outputs at every turn",
        "write the layers as a Python loop; keep what changes in the carry, updated in place, and "
        "not among the stacked inputs and outputs",
        "notebooks/decode-step-made-fast",
        {"gpu": Check(0.83, 2.03, "6 pairs of programs timed on an H200")},
    ),
    Cause(
        "carry-copy",
        "a loop copies its carry at every turn",
        "don't read a slice of a carry that the same turn changes: read it by index (jnp.take), "
        "or all of it",
        "notebooks/decode-step-made-fast",
    ),
    Cause(
        "growing-carry",
        "a loop writes its whole carry anew to append to it",
        "allocate it at its full length before the loop, and write each turn's part at its place: "
        "jax.lax.dynamic_update_slice",
        "notebooks/decode-step-made-fast",
    ),
    Cause(
        "not-donated",
        "an argument is copied before it is updated",
        "donate it: jax.jit(f, donate_argnums=…), and use the result in its place",
        "notebooks/decode-step-made-fast",
    ),
    Cause(
        "fresh-results",
        "every call's results take fresh memory",
        "donate the arguments that they replace, if the caller no longer needs them: "
        "jax.jit(f, donate_argnums=…)",
        "notebooks/where-the-time-goes",
    ),
    Cause(
        "float32",
        "a matmul runs in float32 though one side came as bfloat16",
        "store the other side in bfloat16 (a cast inside the step still reads float32), and ask "
        "for float32 sums with preferred_element_type",
        "notebooks/low-precision",
    ),
    Cause(
        "float64",
        "arrays are float64",
        "if the digits of float32 are enough, cast the arguments before the call: arrays from "
        "NumPy are float64 unless you say otherwise",
        "notebooks/where-the-time-goes",
    ),
    Cause(
        "unfused",
        "a chain of elementwise operations is more than one kernel",
        "put it into one jit, without optimization_barrier and without returning what is between",
        "notebooks/fusion",
    ),
    Cause(
        "split-reduction",
        "a reduction reads an array that the next kernel reads again",
        "let one kernel keep the row on the chip: a fused library call, or a Pallas kernel",
        "notebooks/fused-kernel",
    ),
    Cause(
        "scores",
        "attention scores are written to memory and read again",
        "work through them block by block: fused attention",
        "notebooks/fused-attention",
    ),
    Cause(
        "logits",
        "logits are written to memory and read again",
        "a cross-entropy in chunks needs less memory; whether it takes less time depends on its "
        "sizes, since each chunk reads the head's weights again: compile both",
        "notebooks/where-the-time-goes",
    ),
    Cause(
        "attention",
        "attention runs as separate matmuls where one kernel could do it",
        "jax.nn.dot_product_attention with implementation cudnn on an NVIDIA GPU, splash "
        "attention on a TPU",
        "notebooks/fused-attention",
        {"gpu": Check(1.09, 1.14, "2 pairs of programs timed on an H200")},
    ),
    Cause(
        "recomputed",
        "values are computed again for the backward pass",
        "if memory allows, keep more: a jax.checkpoint policy, or none on the costly parts",
        "notebooks/where-the-time-goes",
    ),
    Cause(
        "gather",
        "a gather or scatter moves single rows below the memory's rate",
        "gather longer rows, sort the indices, or say that they are sorted and unique",
        "notebooks/where-the-time-goes",
    ),
    Cause(
        "sort",
        "a whole array is sorted for its first or last few elements",
        "jax.lax.top_k (of the negated array for the smallest), or jax.lax.approx_max_k",
        "notebooks/where-the-time-goes",
    ),
    Cause(
        "one-hot",
        "a matmul with a one-hot matrix looks rows up in a table",
        "index the table: table[indices]",
        "notebooks/where-the-time-goes",
    ),
    Cause(
        "ragged",
        "a ragged matmul multiplies every row by the weights of all groups",
        "pad each group to one size and multiply in a batch, or call a grouped kernel",
        "notebooks/where-the-time-goes",
    ),
    Cause(
        "small-product",
        "matmuls are too small for the matrix unit, or padded to its tiles",
        "batch them into larger ones, and choose sizes that are multiples of the tile",
        "notebooks/limitations",
    ),
    Cause(
        "vector-product",
        "a matmul is computed on the vector unit",
        "write it as a dot or einsum instead of multiplying and summing",
        "notebooks/where-the-time-goes",
    ),
    Cause(
        "short-kernels",
        "many kernels are shorter than it takes to launch them",
        "fuse or batch them, or roll them into one larger array operation",
        "notebooks/limitations",
    ),
    Cause(
        "tail",
        "the last wave of a kernel leaves most of the GPU idle",
        "choose a block size, a batch or a split that fills whole waves",
        "notebooks/where-the-time-goes",
    ),
    Cause(
        "host",
        "the device waits for the host",
        "put the whole step into one jit, queue several steps before reading a result",
        "notebooks/where-the-time-goes",
    ),
    Cause(
        "dispatch",
        "the device idles while the host starts and ends a call",
        "do more in one call (several steps in a jax.lax.scan), and queue several calls before "
        "reading a result",
        "notebooks/where-the-time-goes",
    ),
    Cause(
        "transfer",
        "data moves between host and device at every call",
        "keep it on the device: put it there once, and read results back seldom",
        "notebooks/where-the-time-goes",
    ),
    Cause(
        "compiling",
        "a program is compiled again at every call",
        "keep shapes, types and static arguments the same, and make the jitted function once",
        "notebooks/where-the-time-goes",
    ),
    Cause(
        "communication",
        "devices wait for an exchange that nothing hides",
        "shard so that less travels, or so that the exchange overlaps computation",
        "notebooks/collectives",
    ),
    *LAST,
)
"""The closed list, by key."""


def causes() -> pandas.DataFrame:
    """Return the closed list of causes as a table: what is wrong, what to try, where to read.

    Examples
    --------
    >>> "host" in causes().index
    True
    """
    from roofline_helpers.common.show import table

    return table(
        {"cause": c.key, "what it is": c.title, "what to try": c.advice, "chapter": c.chapter}
        for c in CAUSES.values()
    )


@dataclass(frozen=True)
class Finding:
    """One cause of lost time in one call.

    Parameters
    ----------
    cause : str
        Its key in `CAUSES`.
    seconds : float
        What it costs a call by its kernels' times: measured, or by the model where nothing ran.
        An estimate, and no promise: that is `saves`.
    kernels : tuple of str
        The kernels that show it.
    evidence : str
        What was seen: bytes, launches, shapes.
    source : str
        The line of the reader's code that it comes from; empty where nothing says it.
    bytes : float
        Bytes of the main memory that are moved because of it.
    share : float
        What its kernels, or the waiting, take of the call: between 0 and 1.
    saves : (float, float) or None
        Seconds that removing it saves, from and to, by what was gained in programs where it was
        removed; None where nobody tried.
    checked : str
        Which programs these were.

    Examples
    --------
    >>> finding = Finding("host", 1e-3, ("fusion",), "calls differ by 40 %")
    >>> finding.title
    'the device waits for the host'
    """

    cause: str
    seconds: float
    kernels: tuple[str, ...]
    evidence: str
    source: str = ""
    bytes: float = 0.0
    share: float = 0.0
    saves: tuple[float, float] | None = None
    checked: str = ""

    @property
    def named(self) -> bool:
        """Whether it names a cause; otherwise it says how near its roof the longest kernel is."""
        return all(self.cause != cause.key for cause in LAST)

    @property
    def title(self) -> str:
        """What is wrong."""
        return CAUSES[self.cause].title

    @property
    def advice(self) -> str:
        """What to try."""
        return CAUSES[self.cause].advice

    @property
    def chapter(self) -> str:
        """The page that teaches it."""
        return CAUSES[self.cause].chapter


@dataclass(frozen=True)
class Claim:
    """What one detector saw: kernels, the seconds a call that each loses, and the bytes.

    `more` are seconds that belong to no kernel: gaps, the host.
    """

    cause: str
    parts: tuple[tuple[TimedRow, float, float], ...]
    evidence: str
    more: float = 0.0
    source: str = ""


@dataclass(frozen=True)
class Case:
    """What findings are made from: one call, its kernels and their programs.

    Parameters
    ----------
    rows : tuple of Row
        Of one call.
    programs : mapping of str to Program
        By the name of their modules.
    ceilings : Ceilings
        Over the device.
    platform : str
        "cpu", "gpu" or "tpu".
    wall : float
        Seconds of a call.
    measured : bool
        Whether the seconds of rows come from a clock; otherwise they are their roofs'.
    compiling : float
        Seconds of each call in which the host compiles.
    processors : int
        Multiprocessors of a GPU; 0 where that isn't known.
    unsteady : float
        Seconds by which the call took longer than the fastest one: what the machine's other work
        may have taken.
    """

    rows: tuple[TimedRow, ...]
    programs: Mapping[str, Program]
    ceilings: Ceilings
    platform: str
    wall: float
    measured: bool = True
    compiling: float = 0.0
    processors: int = 0
    unsteady: float = 0.0

    @cached_property
    def kernels(self) -> tuple[TimedRow, ...]:
        """The rows that are kernels of a known program."""
        known = (row for row in self.rows if row.kind == KERNEL and row.operations)
        return tuple(row for row in known if row.program in self.programs)

    @cached_property
    def by_name(self) -> dict[tuple[str, str], TimedRow]:
        """Kernels by program and name."""
        return {(row.program, row.name): row for row in self.kernels}

    def loops(self) -> list[list[TimedRow]]:
        """Return the kernels of each loop's body."""
        bodies: dict[tuple[str, str], list[TimedRow]] = {}
        for row in self.kernels:
            if self.program(row).in_loop(row.name):
                where = self.program(row).sites[row.name].where.name
                bodies.setdefault((row.program, where), []).append(row)
        return list(bodies.values())

    def program(self, row: TimedRow) -> Program:
        """Return the program of a kernel."""
        return self.programs[row.program]

    def makers(self, row: TimedRow) -> list[TimedRow]:
        """Return the kernels that make what a kernel reads."""
        made = (v.name for v in self.program(row).reads(row.name) if v.kind == "kernel")
        return self._rows(row, made)

    def readers(self, row: TimedRow) -> list[TimedRow]:
        """Return the kernels that read what a kernel makes."""
        return self._rows(row, self.program(row).readers.get(row.name, ()))

    def _rows(self, row: TimedRow, names: Iterable[str]) -> list[TimedRow]:
        pairs = ((row.program, name) for name in dict.fromkeys(names))
        return [self.by_name[pair] for pair in pairs if pair in self.by_name]

    def counted(self, row: TimedRow) -> xla.Row:
        """Return what the compiled program says of one launch of a kernel."""
        return self.program(row).rows[row.name]

    def roof(self, row: TimedRow, like: xla.Row) -> float:
        """Return the least seconds that a kernel's launches would take if they were like this."""
        return self.ceilings.reachable(like, row.launches) or 0.0

    def saved(self, row: TimedRow, like: xla.Row) -> float:
        """Return the seconds that a kernel would save if its work were like this.

        Its time, less by as much as its roof would sink: what it loses elsewhere stays lost.
        """
        now, then = self.roof(row, self.counted(row)), self.roof(row, like)
        return row.seconds * max(1 - then / now, 0.0) if now else 0.0

    def without_bytes(self, row: TimedRow, read: float = 0.0, written: float = 0.0) -> float:
        """Return the seconds that a kernel would save without bytes, of one launch, in memory."""
        there = self.counted(row)
        like = replace(
            there,
            read={"hbm": round(max(there.read.get("hbm", 0) - read, 0))},
            written={"hbm": round(max(there.written.get("hbm", 0) - written, 0))},
        )
        return self.saved(row, like)

    def enough(self, seconds: float) -> bool:
        """Return whether so many seconds are worth a finding."""
        return math.isfinite(seconds) and seconds >= LEAST_SHARE * self.wall
