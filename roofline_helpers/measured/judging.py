"""Is a measured time good? One procedure: possible, limited by what, normal, and what next."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from roofline_helpers.chips import Chip
from roofline_helpers.chips import chip as chip_of
from roofline_helpers.common.checks import BadType, UnknownName, shown, single
from roofline_helpers.common.dtypes import BITS
from roofline_helpers.common.show import Fields, si
from roofline_helpers.measured.kernels import NOT_MEASURED, Expected, Features, expected_kernel
from roofline_helpers.measured.laws import law_of
from roofline_helpers.measured.libraries import seconds_like
from roofline_helpers.measured.tables import NoData
from roofline_helpers.roofline import bound_of
from roofline_helpers.work import Work

SPREAD = 1.5
"""How far measured implementations of one kernel lie apart: beyond, it does something else."""
NEXT = {
    "memory": "move fewer bytes: fuse it with its neighbours, or a narrower type",
    "compute": "ask for fewer FLOPs, or a narrower type",
    "network": "send fewer bytes, or hide them behind work",
    "latency": "launch fewer kernels: it takes about what a launch takes",
}


@dataclass(frozen=True, repr=False)
class Judgement(Fields):
    """What a measured time is worth, and what to do next.

    Parameters
    ----------
    verdict : str
        "normal", "slow for its kind", "far off", "faster than its kind", "impossible" (less than
        the bound), "not measured" (nobody knows what is normal).
    step : int
        The step of the procedure that comes next: 3, count again; 6, does it do more than it must;
        7, is there less to do.
    expected, low, high : float or None
        Seconds that are normal, and the interval of eight in ten such kernels.
    source : str
        Where they come from.
    least : float
        The bound, in seconds.
    bound : str
        "memory", "compute", "network" or "latency".
    next : str
        What to do.

    Examples
    --------
    >>> from roofline_helpers import judge, work
    >>> judge(work.matmul(8192, 8192, 8192), "h100", 4e-3).verdict
    'far off'
    """

    verdict: str
    step: int
    seconds: float
    expected: float | None
    low: float
    high: float
    source: str
    least: float
    bound: str
    next: str

    def __str__(self) -> str:
        """Return it as a sentence."""
        took, least = si(self.seconds, "s"), si(self.least, "s")
        if self.verdict == "impossible":
            return f"{took} is impossible: at published peaks it takes at least {least}"
        if self.expected is None:
            return f"{took} can't be judged: no kernel like it was measured; {least} is the least"
        number = self.source.removeprefix("measured, ").removesuffix(" like it")
        law = self.source.replace("its class", "the law of its class").partition(",")[0]
        who = (
            f"{number} measured kernels like it" if number.isdigit() else f"by {law}, such kernels"
        )
        ends = f"{si(self.low, 's')} to {si(self.high, 's')}"
        return f"{took} is {self.verdict}: {who} take {si(self.expected, 's')} ({ends})"


def judged(seconds: float, found: Expected, least: float, bound: str) -> Judgement:
    """Return the judgement of a time beside what to expect (`found`), its bound and what sets it.

    Examples
    --------
    >>> judged(2e-3, Expected(1e-3, 0.9e-3, 1.2e-3, "its class"), 0.8e-3, "memory").step
    6
    """
    middle, step = found.seconds, 6
    advice = "compare the bytes and FLOPs of its program with the count, remove what is more; then "
    advice += "time another implementation"
    if seconds < 0.98 * least and seconds < found.low:
        verdict, step = "impossible", 3
        advice = "count again: a FLOP, a byte or a second is wrong, or a cache held the operands"
    elif middle is None:
        verdict = NOT_MEASURED
    elif seconds <= found.high:
        verdict, step = "normal" if seconds >= found.low else "faster than its kind", 7
        advice = NEXT["latency" if seconds < 1e-5 else bound]
    else:
        verdict = "far off"
        if seconds <= SPREAD * middle:
            verdict = "slow for its kind"
            advice = "time another implementation in the same program; " + advice.partition(";")[0]
    ends = found.low, found.high
    return Judgement(verdict, step, seconds, middle, *ends, found.source, least, bound, advice)


def judge(job: Work, chip: str | Chip, seconds: float, clock: float | None = None) -> Judgement:
    """Return whether a measured time of a kernel is good on a chip, and what to do next.

    Parameters
    ----------
    job : Work
        The kernel's count, with numbers as sizes.
    chip : str or Chip
        Its device.
    seconds : float
        Its own time by a profiler's trace, or of many in one program; not a call's from Python.
    clock : float, optional
        Hz at which it ran, if that was measured: what computes takes longer at a low clock, by up
        to a quarter in a long run.

    Raises
    ------
    BadType, BadValue, UnknownName
        No count, no time above 0, no such chip.

    Examples
    --------
    >>> from roofline_helpers.work import matmul, softmax
    >>> print(judge(matmul(64, 8192, 8192), "h100", 62e-6))
    62 µs is slow for its kind: 154 measured kernels like it take 50.4 µs (45.8 µs to 56 µs)
    >>> judge(softmax(8192, 8192), "h100", 110e-6).verdict
    'normal'
    """
    if not isinstance(job, Work):
        raise BadType(f"a kernel (roofline_helpers.work) is needed, got {shown(job)}")
    chip, took = chip_of(chip).per_device(), single("seconds", seconds)
    roof = chip.roofline(job.dtype).without_floor()
    least, bound = float(roof.time(job)), bound_of(roof.limit(job) or "hbm")
    found, cache = expected(job, chip), chip.memory.get("l2")
    held = 0.0 if cache is None or cache.capacity is None else cache.capacity.value
    if job.bytes > held:  # the L2 can't hold its operands
        found = replace(found, low=max(found.low, least))
    highest = chip.clock.value if chip.clock else 0.0
    if clock is not None and bound == "compute":
        slower = min(max(highest / single("clock", clock), 1.0), 1.25)
        found = found.times(slower)
    return judged(took, found, least, bound)


def expected(job: Work, chip: str | Chip) -> Expected:
    """Return what is normal for a kernel that was counted by hand, from the first that answers.

    Kernels of serving libraries like it (`seconds_like`); kernels that XLA made like it, or their
    class; the law of the libraries' kernels. Otherwise it takes at least its bound.

    Examples
    --------
    >>> from roofline_helpers.work import add, matmul
    >>> expected(matmul(4096, 4096, 4096), "h200").source
    'measured, 280 like it'
    >>> expected(add(2**28), "h100").seconds > 4e-4
    True
    """
    chip = chip_of(chip).per_device()
    with contextlib.suppress(NoData, UnknownName):
        near = seconds_like(job, chip)
        low, middle, high = (float(at) for at in np.quantile(near, (0.1, 0.5, 0.9)))
        ends = min(low, middle / 1.1), max(high, 1.1 * middle)
        why = "the fastest kernels of serving libraries near its shape"
        return Expected(middle, *ends, f"measured, {len(near)} like it", why)
    features = features_of_work(job)
    found = None if features is None else expected_kernel(features, chip)
    if found is not None:
        return found
    law = law_of(job, chip)
    if law is None:
        least = float(chip.roofline(job.dtype).without_floor().time(job))
        return Expected(None, least, math.inf, NOT_MEASURED, f"no kernels like {job.name}")
    seconds, off = law.seconds(job), 1 + law.law.p90
    return Expected(seconds, seconds / off, seconds * off, "the law of libraries' kernels")


def features_of_work(job: Work) -> Features | None:
    """Return what a hand-counted kernel's time follows, if its class is known.

    Examples
    --------
    >>> from roofline_helpers.work import gelu
    >>> features_of_work(gelu(1000)).sizes
    (1000,)
    """
    sizes: tuple[Any, ...]
    d, bits = {name: int(size) for name, size in job.dims.items()}, BITS[job.dtype]
    tensors = [float(n) for n in (*job.reads.values(), *job.writes.values())]
    wider = 2 if max(tensors) / 2 in tensors else 1  # what a conversion reads or writes
    elements = round(max(tensors) * 8 / bits / wider)
    if job.kind == "matmul":
        kind, sizes = "matmul", (d["m"], d["k"], d["n"])
    elif job.kind == "prefill_attention":
        kind, sizes = "attention", (d["batch"] * d["heads"], d["kv_len"], d["head_dim"])
    elif "columns" in d:
        kind = "reduction" if job.kind == "reduction" else "normalisation"
        sizes = elements // d["columns"], d["columns"], 1
    elif job.matrix_flops or job.others:
        return None
    else:
        kind, sizes = "stream", (elements,)
    counted = float(job.bytes), float(job.matrix_flops), float(job.vector_flops)
    each = max(float(job.vector_flops) / elements, 1)
    return Features(kind, *counted, job.dtype, sizes, each, bits)
