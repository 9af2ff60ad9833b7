"""What a kernel takes by what it does: laws of kernels that XLA made, and measured ones like it."""

from __future__ import annotations

import csv
import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np

from roofline_helpers.chips import Chip
from roofline_helpers.chips import chip as chip_of
from roofline_helpers.common.show import Fields, si
from roofline_helpers.measured.tables import FOLDER

SMS, TILE = 132, 128
"""Multiprocessors of an H100 and an H200, and the side of a matmul's tile."""
FEWEST = 4
"""Measured kernels from which on those like one count, beside their class."""
LIKE = math.log(2) * (1 + 1e-9)  # many sizes are exactly a factor of 2 apart
"""Each part of the time of kernels like one is within a factor of 2 of its own."""
MATTERS = 0.05
"""Share of a kernel's time from which on a part of it decides what is like it."""


class Features(msgspec.Struct, frozen=True):
    """What the time of one launch of a kernel follows.

    Parameters
    ----------
    kind : str
        What it does: "stream", "matmul", "sort", … (`roofline.xla.forms` reads it from a program).
    bytes, flops, vector_flops : float
        To and from the memory, of the matrix unit, and of all else.
    dtype : str
        The matrix unit's type.
    sizes : tuple of int
        Outside, along and inside of what it goes along: of a matmul m, k and n.
    operations : float
        Instructions fused in it.
    bits : int
        Of an element of its narrowest operand.

    Examples
    --------
    >>> Features("stream", 4e6, sizes=(10**6,)).kind
    'stream'
    """

    kind: str
    bytes: float
    flops: float = 0.0
    vector_flops: float = 0.0
    dtype: str = "bf16"
    sizes: tuple[float, ...] = ()
    operations: float = 1.0
    bits: float = 16


def parts(of: Features, chip: Chip) -> dict[str, float]:
    """Return the parts of a kernel's time, each by a rate that a law multiplies.

    Those of bytes and FLOPs are seconds by the published bandwidth and peak; "blocks" are groups of
    128 threads at 1.65 a nanosecond, each thread of up to four elements; "waves" are a matmul's
    tiles on all multiprocessors together; "retries" what waits for one place in memory. Elements
    take a picosecond, and a nanosecond what happens one after the other: "along", "rows", "chain".

    Examples
    --------
    >>> found = parts(Features("stream", 3.35e6, sizes=(10**6,)), chip_of("h100"))
    >>> round(found["bytes"] * 1e6, 3), round(found["blocks"] * 1e6, 2)
    (1.0, 1.18)
    """
    outer, along, inner = (*of.sizes, 1, 1, 1)[:3]
    roof = chip.roofline(of.dtype)
    chosen = of.kind in CHOOSING  # rows of a table, which aren't gone along
    elements = outer * inner * (1 if chosen else along)
    rounds = math.ceil(math.log2(max(along, 2)))
    moved, multiplied = of.bytes / roof.bandwidth, of.flops / roof.peak
    odd = (along * of.bits) % 128 or (inner * of.bits) % 128
    width = 4 if elements % 4 == 0 else 2 if elements % 2 == 0 else 1
    batch = max(of.flops / (2 * elements), 1) if elements else 1
    tiles = batch * math.ceil(outer / TILE) * math.ceil(inner / TILE)
    waiting = min(elements, 2048 * SMS) / (along * inner) if chosen else 0
    return {
        "bytes": moved,
        "bytes of odd lengths": moved * (math.log2(along) % 1 > 0),
        "FLOPs": multiplied,
        "FLOPs unaligned": multiplied * bool(odd),
        "FLOPs of a byte": multiplied * (of.bits <= 8),
        "FLOPs of 128": multiplied * TILE / inner,
        "waves": math.ceil(tiles / SMS) * SMS * 2 * TILE**2 * along / roof.peak,
        "narrow": 2 * outer * along * math.ceil(inner / 64) * 64 / roof.peak,
        "vector": of.vector_flops / (chip.roofline("bf16").vector or math.inf),
        "blocks": elements / width / TILE / 1.65e9,
        "elements": elements * 1e-12,
        "elements of a byte": elements * 1e-12 * (of.bits <= 8),
        "instructions": of.operations * elements * 1e-14,
        "chain": of.operations * 1e-9,
        "along": along * 1e-9,
        "along across": along * 1e-9 * (inner >= 32),
        "along alone": along * 1e-9 * (outer == 1),
        "along together": along * 1e-9 * (outer > 1),
        "rows": outer * along * 1e-9 if of.kind.startswith("attention") else outer * 1e-9,
        "hits": outer / along * 1e-9,
        "retries": elements * waiting * 1e-10,
        "sectors": elements * 32 / max(32, inner) * 1e-11,
        "rounds": rounds**2 * 1e-6,
        "compares": elements * rounds**2 * 1e-12,
        "passes": max(rounds - 12, 0) * 1e-6,
        "squares": along**2 * 1e-9,
        "columns": outer * along**2 * max(inner, 16) * 1e-13,
        "cubes": outer * along**3 * 1e-13,
    }


CHOOSING = ("gather", "scatter", "atomics", "atomics of 16 bits")
"""Classes that choose rows of a table: how many indices, rows, and elements of each."""


class KernelLaw(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The law of one class: ``start + (Σ (weight · part)^corner)^(1 / corner)``.

    `low` and `high` are the factors around it inside which eight in ten left-out kernels lie that
    have measured kernels like them, `wide` those of a family that was left out whole; `cases` and
    `families` are what it was fitted to.
    """

    start: float
    corner: float
    weights: dict[str, float]
    low: float
    high: float
    wide: tuple[float, float]
    cases: int
    families: int

    def shares(self, found: Mapping[str, float]) -> Any:
        """Return the seconds of each part that has a weight."""
        return np.array([weight * found[name] for name, weight in self.weights.items()])

    def seconds(self, shares: Any) -> Any:
        """Return the seconds of parts' seconds, along the last axis."""
        largest = np.maximum(shares.max(-1), 1e-30)
        ratios = (shares / largest[..., None]) ** self.corner
        return self.start + largest * ratios.sum(-1) ** (1 / self.corner)


class Call(msgspec.Struct, frozen=True):
    """How kernels add up to a call, as JAX runs it: their sum, and a `gap` between two.

    `low` and `high` are the factors around it that hold eight in ten calls; `correlation` is that
    of the kernels' errors.
    """

    gap: float
    low: float
    high: float
    correlation: float


class _File(msgspec.Struct, frozen=True):
    kinds: dict[str, KernelLaw]
    call: Call
    least: dict[str, float]


@functools.cache
def kernel_laws() -> _File:
    """Return the laws of classes (`kinds`), that of calls, and the least seconds of kernels.

    Examples
    --------
    >>> kernel_laws().kinds["stream"].cases > 100, 0 < kernel_laws().call.gap < 2e-6
    (True, True)
    """
    return msgspec.json.decode((FOLDER / "kernel-laws.json").read_bytes(), type=_File)


def measured_kernels() -> list[dict[str, str]]:
    """Return the rows of the table of measured kernels, as text.

    Examples
    --------
    >>> {row["chip"] for row in measured_kernels()} == {"h100", "h200"}
    True
    """
    with (FOLDER / "kernels.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def features_of_row(row: Mapping[str, str]) -> Features:
    """Return the features of a row of the table.

    Examples
    --------
    >>> features_of_row(measured_kernels()[0]).bytes > 0
    True
    """
    numbers = {n: float(row[n]) for n in "bytes flops vector_flops operations bits".split()}
    sizes = tuple(int(size) for size in row["sizes"].split("×") if size)
    return Features(row["kind"], dtype=row["dtype"] or "bf16", sizes=sizes, **numbers)


class Neighbours(msgspec.Struct, frozen=True):
    """Measured kernels of a class: seconds of their parts by its law, and what they took."""

    shares: Any
    seconds: Any
    by_law: Any
    cases: Any

    def like(self, shares: Any, start: float) -> Any:
        """Return which of them are like a kernel: each part that matters within a factor of 2."""
        whole = start + shares.max()
        matter = np.maximum(self.shares / self.by_law[:, None], shares / whole) > MATTERS
        with np.errstate(divide="ignore", invalid="ignore"):
            apart = np.abs(np.log(self.shares / shares)) > LIKE
        return ~(matter & apart).any(1)


@functools.cache
def neighbours(kind: str) -> Neighbours:
    """Return the measured kernels of a class, on both GPUs.

    Examples
    --------
    >>> len(neighbours("sort").seconds) > 20
    True
    """
    law = kernel_laws().kinds[kind]
    rows = [row for row in measured_kernels() if row["kind"] == kind]
    shares = np.array([law.shares(parts(features_of_row(r), chip_of(r["chip"]))) for r in rows])
    cases = np.array([f"{row['chip']} {row['case']}" for row in rows])
    seconds = np.array([float(row["cold_s"]) for row in rows])
    return Neighbours(shares, seconds, law.seconds(shares), cases)


def interval(
    by_law: float, residuals: Any, number: int, low: float, high: float
) -> tuple[float, float, float]:
    """Return the seconds to expect of a kernel, and the ends of its interval.

    Of `number` cases like it the residuals move the law's time by as much as their number is worth
    beside four of the class, whose factors are `low` and `high`.
    """
    if residuals is None or number < FEWEST:
        return by_law, by_law * low, by_law * high
    worth = number / (number + FEWEST)
    middle = float(np.median(residuals))
    own = np.quantile(residuals, (0.1, 0.9), method="weibull") - middle
    seconds = by_law * math.exp(worth * middle)
    ends = (1 - worth) * np.log([low, high]) + worth * own
    return seconds, seconds * math.exp(ends[0]), seconds * math.exp(ends[1])


# --- The time to expect, its interval and where both come from -----------------------------------

NOT_MEASURED = "not measured"
"""The source of a time of which only the least is known."""


@dataclass(frozen=True, repr=False)
class Expected(Fields):
    """The time to expect, in seconds.

    Parameters
    ----------
    seconds : float or None
        What is normal; None where nothing was measured: then it takes at least `low`.
    low, high : float
        Inside them lie about eight in ten kernels that nobody has measured yet.
    source : str
        "measured, 12 like it", "its class", "the compiler's cycles", …, or `NOT_MEASURED`.
    why : str
        What it rests on, in a sentence.

    Examples
    --------
    >>> str(Expected(2e-3, 1.8e-3, 2.4e-3, "its class"))
    '2 ms (1.8 ms to 2.4 ms)'
    >>> str(Expected(None, 1.8e-3, math.inf, NOT_MEASURED))
    'at least 1.8 ms, not measured'
    """

    seconds: float | None
    low: float
    high: float
    source: str = ""
    why: str = ""

    def __str__(self) -> str:
        """Return it as text: the time and its interval."""
        if self.seconds is None:
            return f"at least {si(self.low, 's')}, {NOT_MEASURED}"
        if math.isinf(self.high):
            return f"{si(self.seconds, 's')} (at least {si(self.low, 's')})"
        if self.high <= 1.01 * self.seconds and self.low >= 0.99 * self.seconds:
            return si(self.seconds, "s")
        return f"{si(self.seconds, 's')} ({si(self.low, 's')} to {si(self.high, 's')})"

    @property
    def known(self) -> float:
        """The seconds to expect, or those that it takes at least where no more is known."""
        return self.low if self.seconds is None else self.seconds

    def times(self, n: float) -> Expected:
        """Return the time of so many launches, one after another."""
        seconds = None if self.seconds is None else self.seconds * n
        return replace(self, seconds=seconds, low=self.low * n, high=self.high * n)


# Types of measured products; those of fp16 take as long as bf16's: 20 of 22 lay inside its ends
MULTIPLIED = ("bf16", "fp16", "tf32", "int8", "fp8")


def expected_kernel(of: Features, chip: Chip) -> Expected | None:
    """Return the time to expect of one launch of a kernel, by its class and kernels like it.

    None for a class, on a chip, or for products of a type whose kernels weren't measured as XLA
    makes them: with HIGHEST fp32 took up to eight times what is expected of TF32 on an H200.

    Examples
    --------
    >>> one = expected_kernel(Features("stream", 3e8, sizes=(5 * 10**7,)), chip_of("h100"))
    >>> one.low < one.seconds < one.high, one.source.partition(",")[0]
    (True, 'measured')
    """
    law = kernel_laws().kinds.get(of.kind)
    measured = of.dtype in MULTIPLIED or not of.flops
    if law is None or chip.key not in kernel_laws().least or not measured:
        return None
    shares, near = law.shares(parts(of, chip)), neighbours(of.kind)
    like = near.like(shares, law.start)
    number = len(set(near.cases[like]))
    residuals = np.log(near.seconds[like] / near.by_law[like])
    factors = (law.low, law.high) if number >= FEWEST else law.wide
    ends = interval(float(law.seconds(shares)), residuals, number, *factors)
    source = f"measured, {number} like it" if number >= FEWEST else f"its class, {of.kind}"
    why = f"{law.cases} measured cases of {of.kind}, as XLA makes them on an H100 and an H200"
    return Expected(*ends, source, why)
