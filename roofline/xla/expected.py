"""The time to expect of a compiled program: what measured kernels like its own take."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from roofline import evidence as files
from roofline.network.measured import best_exchange, exchange_seconds, law_of_exchange
from roofline.xla.forms import RANDOM, Form
from roofline.xla.kernel import CompiledKernel
from roofline.xla.ledger import Row
from roofline.xla.roofs import PASSES, at_best, least_kernel, main_dtype, type_on
from roofline.xla.targets import assumed_vector_peak, clock_of
from roofline_helpers import chips
from roofline_helpers.chips import floor_of
from roofline_helpers.common.checks import UnknownName
from roofline_helpers.common.show import si
from roofline_helpers.measured.kernels import (
    NOT_MEASURED,
    Expected,
    Features,
    expected_kernel,
    kernel_laws,
)
from roofline_helpers.measured.laws import law_of, least_times
from roofline_helpers.roofline import Kernel, Roofline
from roofline_helpers.work import flash_attention, matmul


class Like(NamedTuple):
    """Seconds of measured kernels of a kernel's size: of good ones, and of half of them."""

    good: float
    usual: float


def expected_of(kernel: CompiledKernel) -> Expected:
    """Return the time to expect of all launches of a compiled kernel, with interval and source.

    On a GPU by measured kernels like it, else by its class; on a TPU by the compiler's cycles.
    Where there are neither, and data or a library decide what it does, only the least is known.
    """
    chip, row = kernel.chip, kernel.work
    least = kernel.roof_seconds or 0.0
    roof = kernel.device.over(row.matrix_types, reached=True)
    if chip is None or roof is None:
        return Expected(None, 0.0, math.inf, NOT_MEASURED, "no ceilings are known")
    if kernel.endless:
        return Expected(None, least, math.inf, TURNS, "nothing says how often its loop turns")
    assumed = assumed_vector_peak(chip)
    vector = roof.vector or (assumed[0] if assumed is not None else None)
    once = Kernel(row, replace(roof, floor=None, vector=vector)).roof_seconds or 0.0
    reached = max(once * kernel.launches, least)
    if row.is_scalar and kernel.flops:
        ticks = clock_of(chip)
        least = max(least, kernel.launches / ticks[0] if ticks else 0.0)
        why = "single numbers, one after another, a clock a turn at least, may take any time"
        return Expected(None, least, math.inf, NOT_MEASURED, why)
    if row.collective is not None:
        exchange = like(row, chip)
        if exchange is not None:
            good, usual = (max(reached, seconds * kernel.launches) for seconds in exchange)
            return Expected(usual, good, 2 * usual - good, "the law of its exchange")
    elif chip.kind == "gpu":
        found = expected_features(features_of(kernel), chip)
        if found is None:
            least = max(least, least_kernel(chip) * kernel.launches)
            of = f" of {row.matrix_types[0]}" if row.matrix_types else ""
            why = f"no kernels like {row.name} ({row.role}{of}) were measured"
            return Expected(None, least, math.inf, NOT_MEASURED, why)
        return _not_below(found.times(kernel.launches), kernel, chip)
    elif kernel.cycle_seconds is not None:
        seconds, (low, high, why) = max(reached, kernel.cycle_seconds), worth_of_cycles()
        return Expected(seconds, max(low * seconds, least), high * seconds, CYCLES, why)
    elif _goes_by_data(row):
        why = f"the compiler has no cycles for {row.name} ({row.role}), whose data decide its time"
        return Expected(None, least, math.inf, NOT_MEASURED, why)
    most = max(kernel.most_seconds or 0.0, reached)
    return Expected(reached, least, most, "reached ceilings", "reached ceilings")


def expected_features(features: Features, chip: chips.Chip) -> Expected | None:
    """Return the time to expect of one launch of what has these features; None if not measured.

    On a GPU whose kernels were measured only by serving libraries, what XLA's take beside those of
    an H100 and an H200 counts. No law describes products of a type without a peak, or no elements.

    Examples
    --------
    >>> product = Features("matmul", 3 * 2**25, 2 * 4096**3, sizes=(4096, 4096, 4096))
    >>> [expected_features(product, chips.chip(name)).source for name in ("h100", "b200")]
    ['measured, 15 like it', "libraries' kernels"]
    >>> expected_features(Features("sort", 1e6, sizes=(1, 10**5, 1)), chips.chip("b200"))
    """
    roof = _roof(features.dtype, chip)
    if roof is None or 0 in features.sizes[1:]:
        return None
    found = expected_kernel(features, chip)
    beside = kernel_laws().kinds.get(f"{features.kind} beside libraries")
    if found is not None or beside is None:
        return found
    of_kind = {
        "matmul": matmul(64, 64, 64, features.dtype),
        "attention": flash_attention(1, 128, 128, dtype=features.dtype, causal=True),
    }
    law = law_of(of_kind[features.kind], chip)
    if law is None:
        return None
    times = features.flops / roof.peak, features.bytes / roof.bandwidth
    seconds = beside.weights["law"] * float(law.time(*times, features.sizes[1]))
    low, high = beside.low / (1 + law.law.p90), beside.high * (1 + law.law.p90)
    why = f"the law of {law.shapes} shapes of serving libraries on {chip.name}"
    return Expected(seconds, low * seconds, high * seconds, "libraries' kernels", why)


def _roof(dtype: str, chip: chips.Chip) -> Roofline | None:
    """Return the roofline of a type; None if the chip has no peak for it, as for products of int32.

    These run as any loop does, which no law describes.
    """
    try:
        return chip.roofline(dtype)
    except UnknownName:
        return None


CYCLES, TURNS = "the compiler's cycles", "unknown turns"
_BY_DATA = {"gather", "scatter", "sort", "rng-bit-generator", "fft", "cholesky", "triangular-solve"}


def _goes_by_data(row: Row) -> bool:
    """Return whether a kernel's bytes and FLOPs don't tell its time: a library's, or by index."""
    bits = row.operations.get("xor", 0) >= RANDOM
    return bool(bits or row.flops.unknown or row.untimed or _BY_DATA & row.operations.keys())


def _not_below(found: Expected, kernel: CompiledKernel, chip: chips.Chip) -> Expected:
    """Return an expected time that isn't below the bound, unless a cache may hold the operands."""
    cache, least = chip.memory.get("l2"), kernel.roof_seconds or 0.0
    held = 0.0 if cache is None or cache.capacity is None else float(cache.capacity)
    if found.seconds is None or found.low >= least:
        return found
    if kernel.work.bytes <= held and kernel.limit == "hbm":
        text = f"{found.why}; its operands may still be in the L2, else it takes {si(least, 's')}"
        return replace(found, why=f"{text} at least")
    return replace(
        found,
        seconds=max(found.seconds, least),
        low=least,
        high=max(found.high, least),
    )


def floor_of_launch(chip: chips.Chip) -> float:
    """Return the seconds of a launch that does nothing, among others: with the gap, on a GPU.

    Examples
    --------
    >>> 1.5e-6 < floor_of_launch(chips.chip("h100")) < 2e-6
    True
    """
    if chip.key not in kernel_laws().least:
        return floor_of(chip)
    return least_kernel(chip) + kernel_laws().call.gap


def combined(every: Sequence[Expected], whole: float, chip: chips.Chip) -> Expected:
    """Return the time to expect of kernels that take `whole` seconds, those not measured at least.

    On a GPU errors of two kernels are correlated as in measured programs; on other chips they may
    all have one cause. What nobody measured counts with its least, and up to `UNTOLD` times that;
    where this is more than the whole, there is no end above, and no time either.
    """
    correlation = kernel_laws().call.correlation if chip.kind == "gpu" else 1.0
    known = [(each, each.seconds) for each in every if each.seconds is not None]
    ends = []
    for side in (-1, 1):
        apart = [side * ((e.low if side < 0 else e.high) - seconds) for e, seconds in known]
        alike, alone = math.fsum(apart) ** 2, math.fsum(distance**2 for distance in apart)
        if math.isfinite(alike):
            alike = correlation * alike + (1 - correlation) * alone
        ends.append(side * math.sqrt(alike))
    low, high = max(whole + ends[0], 0.0), whole + ends[1]
    unknown = [each for each in every if each.seconds is None]
    untold = math.fsum(each.low for each in unknown)
    times = UNTOLD[chip.kind]
    if times * untold > whole or any(each.source == TURNS for each in unknown):
        more = len({each.why for each in unknown}) - 1
        why = unknown[0].why + (f", and {more} more like it" if more else "")
        return Expected(None, low, math.inf, NOT_MEASURED, why)
    sources = Counter(each.source.partition(",")[0] for each in every)
    of_each = ", ".join(f"{name} {n}" for name, n in sources.most_common())
    source = every[0].source if len(every) == 1 else f"kernels by source: {of_each}"
    why = max(known, key=lambda pair: pair[1], default=(every[0], 0.0))[0].why if every else ""
    if unknown:
        high, why = (
            math.inf if chip.kind == "tpu" else high + (times - 1) * untold,
            f"{why}; {unknown[0].why}",
        )
    return Expected(whole, low, high, source, why)


UNTOLD = {"cpu": 10, "gpu": 10, "tpu": 1000}
"""Times its least that a kernel may take which nobody measured, where others decide the call.

A TPU may move its elements one after another, so that there it has no end above."""


LOOPED, LOOPED_MOST = 1.9e-6, 4.5e-6
"""Seconds that a launch in a GPU's loop takes beyond its kernel and a call's gap: the median and
the most of loops of known length on an H200 (evidence "settings"), queued launch by launch."""
CAPTURED = 5
"""Launches of a turn from which on JAX may put it into a CUDA graph: then they take no more."""


def as_one_call(kernels: Expected, launches: Sequence[int], chip: chips.Chip) -> Expected:
    """Return the time of a call of several kernels on a GPU, with the gaps between them.

    `launches` are of each kernel; one that is launched several times is in a loop, with those of as
    many launches. A turn has one launch more, which counts it. The interval is wider by what calls
    differ from their kernels' sum, and begins where nothing lies between them, as in a profile. On
    other chips, and of one launch, the time is the kernels' own.
    """
    every = sum(launches)
    if chip.kind != "gpu" or every <= 1:
        return kernels
    call = kernel_laws().call
    gaps = call.gap * (every - 1)
    if kernels.seconds is None:
        return replace(kernels, low=kernels.low + gaps)
    looped = most = 0.0
    for turns, inside in Counter(n for n in launches if n > 1).items():
        counter = floor_of_launch(chip)
        most += turns * ((inside + 1) * LOOPED_MOST + counter)
        if inside + 1 < CAPTURED:
            looped += turns * ((inside + 1) * LOOPED + counter)
    seconds = kernels.seconds + gaps
    below = math.hypot(kernels.seconds - kernels.low, seconds * (1 - call.low))
    above = math.hypot(kernels.high - kernels.seconds, seconds * (call.high - 1))
    low = min(seconds - below, kernels.low)
    return replace(kernels, seconds=seconds + looped, low=low, high=seconds + above + most)


def like(row: Row, chip: chips.Chip) -> Like | None:
    """Return what one launch's size takes by the laws of measured kernels; None without a law.

    For exchanges on one host's links, and on GPUs for matmuls and attention that the matrix unit
    limits. A kernel that memory limits is left to the stream's bandwidth, since a benchmark's
    small arrays often come from a cache.
    """
    exchange = row.collective
    if exchange is not None:
        law, devices = law_of_exchange(exchange.kind, chip), exchange.group_size
        best = best_exchange(exchange.kind, devices, chip)
        if law is None or best is None:
            return None
        # The law's start is a launch, which is no part of a kernel
        good = law.step * (devices - 1) + exchange.link_bytes / best
        usual = exchange_seconds(law, chip, exchange.link_bytes, devices) - law.start
        return Like(good, max(good, usual))
    if chip.kind != "gpu" or len(row.matrix_types) != 1 or "×" in row.matrix_types[0]:
        return None
    dtype = main_dtype(row.matrix_types) or ""
    roof = _roof(dtype, chip)
    if roof is None or row.matrix_types[0].partition(" ")[2] in PASSES:
        return None
    if row.role.startswith("cuDNN attention"):
        law = law_of(flash_attention(1, 128, 128, dtype=dtype, causal=True), chip)
        times = row.matrix_flops / roof.peak, 0.0
        if law is None:
            return None
        return Like(times[0] / at_best(law).compute, times[0] / law.compute)
    if not row.matmul:
        return None
    m, n, k = row.matmul
    job = matmul(m, n, k, dtype)
    law = law_of(job, chip)
    times = least_times(job, chip)
    if law is None or times[0] <= times[1]:
        return None
    return Like(at_best(law).seconds(job), law.seconds(job))


class Worth(NamedTuple):
    """Published times over the compiler's cycles: the least and the largest, and where from."""

    least: float
    largest: float
    why: str


@functools.cache
def worth_of_cycles() -> Worth:
    """Return what published kernels took, as shares of the time that the cycles make of them.

    That is the cycles at the chip's clock, or the roof where it is longer.

    Examples
    --------
    >>> worth = worth_of_cycles()
    >>> round(worth.least, 2), round(worth.largest, 2)
    (0.44, 1.22)
    """
    shares: dict[str, list[float]] = {"matmul": [], "copy": []}
    rows = files.load("cycles")["rows"]
    clocks = {name: clock_of(chips.chip(name).per_device()) for name in {r["chip"] for r in rows}}
    for row in rows:
        hertz, _ = clocks[row["chip"]] or (math.nan, "")
        if row["published"]:
            shares[row["kind"]].append(row["published"] / max(row["cycles"] / hertz, row["roof"]))
    ranges = {kind: f"{min(group):.2f} to {max(group):.2f}" for kind, group in shares.items()}
    every = [share for group in shares.values() for share in group]
    return Worth(
        min(every),
        max(every),
        f"the compiler's cycles, or the roof where it is longer; published matmuls took "
        f"{ranges['matmul']} of that, copies {ranges['copy']}; others weren't compared",
    )


def features_of(kernel: CompiledKernel) -> Features:
    """Return what the time of one launch of a compiled kernel follows on a GPU."""
    row, form = kernel.work, kernel.work.form or Form()
    product = row.matrix_types[0] if row.matrix_types else "bf16"
    dtype = type_on(product, () if kernel.chip is None else kernel.chip.matrix)
    if product.startswith("c") or product.partition(" ")[2] in PASSES:
        dtype = product  # of several products, whose times aren't those of one
    return Features(
        form.kind,
        row.bytes,
        row.matrix_flops,
        row.vector_flops,
        dtype,
        form.sizes,
        sum(row.operations.values()),
        form.bits,
    )
