"""Measured collectives of GPUs in one host: their laws, and those like a given one."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

import numpy as np

from roofline.network.collectives import Collective, Phase
from roofline_helpers.chips import Chip
from roofline_helpers.chips import chip as chip_of
from roofline_helpers.common.checks import BadValue, UnknownName, name_of
from roofline_helpers.common.show import si
from roofline_helpers.measured.laws import Law, law, laws_of
from roofline_helpers.measured.tables import group

Floats: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.float64]]"

MOST_DEVICES = 8
"""The most GPUs of one host among which collectives were measured."""
SAME_GPU = {"gb300": "b300"}
"""Chips without measured kernels, each with the chip whose laws predict its whole steps."""
HOST = {"gb200": 4}
"""GPUs among which DeepEP was timed, where they aren't eight."""
COLLECTIVES = {
    "all-gather": "all_gather",
    "reduce-scatter": "reduce_scatter",
    "all-reduce": "all_reduce",
    "all-to-all": "alltoall",
}
"""Collectives that were measured, and their names in the tables."""


def by_law(collective: Collective, chip: Chip) -> Collective:
    """Return a collective with the law's seconds for its part over the links of one host.

    Collectives without a law are unchanged: other networks and algorithms, over `MOST_DEVICES`.

    Examples
    --------
    >>> from roofline.network import all_reduce, topology
    >>> host = topology("h100", 8, ceilings="reached")
    >>> small = all_reduce(2**13, host.fast)
    >>> by_law(small, host.chip).seconds < 0.7 * small.seconds
    True
    """

    def phase_by_law(phase: Phase) -> Phase:
        law = law_of_exchange(collective.kind, chip)
        (axis, *more) = phase.axes
        ring = phase.network == "nvlink" and phase.algorithm == "ring" and not more
        if law is None or not ring or axis.size > MOST_DEVICES:
            return phase
        latency = law.time(0.0, 0.0, axis.size - 1)
        transfer = exchange_seconds(law, chip, phase.link_bytes, axis.size) - latency
        return replace(phase, latency=latency, transfer=transfer)

    return replace(collective, phases=tuple(map(phase_by_law, collective.phases)))


def expert_exchange(
    op: str, chip: Chip, devices: int, tokens: float, hidden: int, experts: int, top_k: int
) -> float | None:
    """Return the seconds of DeepEP's "dispatch" in fp8 or "combine" in bf16 among a host's GPUs.

    `tokens` are those of one GPU, each for `top_k` of the experts. Between measured numbers of them
    the time is interpolated, and the faster mode counts. None for what wasn't measured.

    Examples
    --------
    >>> took = expert_exchange("combine", chip_of("h200"), 8, 100, 7168, 256, 8)
    >>> f"{took * 1e6:.0f} µs"
    '55 µs'
    """
    key = SAME_GPU.get(chip.key, chip.key)
    rows = group("expert_exchange", key, "fp8" if op == "dispatch" else "bf16")
    asked = {"op": op, "hidden": hidden, "experts": experts, "top_k": top_k}
    same = np.logical_and.reduce([rows[name] == value for name, value in asked.items()])
    times = []
    for mode in ("low latency", "throughput"):
        here = same & (rows["mode"] == mode)
        known = rows["tokens"][here]
        if devices == HOST.get(key, 8) and len(known) and known.min() <= tokens <= known.max():
            order = np.argsort(known)
            curve = np.log(known[order]), np.log(rows["seconds"][here][order])
            times.append(float(np.exp(np.interp(np.log(tokens), *curve))))
    return min(times, default=None)


def law_of_exchange(kind: str, chip: Chip) -> Law | None:
    """Return the law of a collective over the links of one host; None where none was fitted."""
    laws = {law.chip: law for law in laws_of(kind) if law.dtype == "fp16"}
    return laws.get(SAME_GPU.get(chip.key, chip.key))


def exchange_seconds(law: Law, chip: Chip, link_bytes: float, devices: int) -> float:
    """Return the law's seconds of a collective in which a device sends so many bytes."""
    link = chip.links["nvlink"]
    return float(law.time(0.0, link_bytes / (link.count * link.rate.value), devices - 1))


def experts_seconds(op: str, pairs: float, hidden: int, chip: str | Chip, devices: int) -> float:
    """Return the seconds of an exchange of experts by DeepEP's kernels for decode.

    Parameters
    ----------
    op : {"dispatch", "combine"}
        Tokens to their experts, in fp8 with a scale for 128 elements; or results back, in bf16.
    pairs : float
        Of a token of one device and an expert, each of which is sent.
    hidden : int
        Elements of a token.
    chip : str or Chip
        H100, H200, B200, B300, GB200; a GB300 takes the B300's.
    devices : int
        GPUs of one host: other numbers than were measured, 8 or a GB200's 4, take the same law.

    Raises
    ------
    BadValue
        More devices than one host has: rates over a network, or a domain of 72, weren't measured.
    UnknownName
        No such exchange, or none on this chip.

    Source: `aiconfigurator-core` 0.12.0, `wideep_deepep_ll_perf`.

    Examples
    --------
    >>> there, back = (
    ...     experts_seconds(op, 64 * 8, 7168, "h200", 8) for op in ("dispatch", "combine")
    ... )
    >>> 2e-5 < there < back < 5e-5
    True
    """
    known = chip_of(chip)
    most = 4 if known.key.startswith("gb") else MOST_DEVICES
    if not 1 < devices <= most:
        raise BadValue(
            f"an exchange of experts was measured in one host, of up to {most} {known.name}, "
            f"not over {devices}: its rate beyond, by network or NVLink, is missing"
        )
    name_of("exchange of experts", op, ("dispatch", "combine"))
    fitted = law(op, SAME_GPU.get(known.key, known.key), "fp8" if op == "dispatch" else "bf16")
    width = hidden * (1 + 4 / 128) + 16 if op == "dispatch" else 2 * hidden
    away = pairs * width * (devices - 1) / devices
    return exchange_seconds(fitted, known, away, 1)


def exchange_beside(
    kind: str, size: float, devices: int, chip: str | Chip, seconds: float
) -> str | None:
    """Return a line on measured collectives of about `size` bytes over as many GPUs of a host.

    `size` is that of the whole array, and `seconds` the time that they are held against. None if
    there are none.
    """
    measured = []
    families = {"collective": "NCCL", "custom_all_reduce": "a serving library's own kernel"}
    for family, library in families.items():
        sizes, times = _exchanges(family, kind, devices, chip)
        if len(sizes) and sizes.min() <= size <= sizes.max():
            middle = np.exp(np.interp(np.log(size), np.log(sizes), np.log(times)))
            measured.append(f"{si(float(middle), 's')} by {library}")
    if not measured:
        return None
    others = f"measured {kind}s of {si(size, 'B')} over {devices} GPUs take {', '.join(measured)}"
    return f"{others}; this one moves bytes for {si(seconds, 's')}"


def best_exchange(kind: str, devices: int, chip: str | Chip) -> float | None:
    """Return the byte/s that a GPU sends, by the ring's count, in the best measured collective.

    None without any of this kind over so many GPUs.
    """
    sizes, times = _exchanges("collective", kind, devices, chip)
    sent = {"all-reduce": 2}.get(kind, 1) * sizes * (devices - 1) / devices
    return float((sent / times).max()) if len(sizes) else None


def _exchanges(family: str, kind: str, devices: int, chip: str | Chip) -> tuple[Floats, Floats]:
    """Return bytes and seconds of the measured collectives of a kind, in ascending order."""
    try:
        key = chip_of(chip).key
    except UnknownName:
        return np.empty(0), np.empty(0)
    rows = group(family, key, "fp16" if family == "collective" else "bf16")
    wanted = (rows["op"] == COLLECTIVES.get(kind)) & (rows["gpus"] == devices)
    sizes, times = (rows[name][wanted].astype(float) for name in ("bytes", "seconds"))
    order = np.argsort(sizes)
    return sizes[order], times[order]
