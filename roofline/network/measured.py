"""Measured collectives of GPUs in one host: their laws, and those like a given one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from roofline.network.collectives import Collective, Phase, distinct
from roofline_helpers.chips import Chip
from roofline_helpers.chips import chip as chip_of
from roofline_helpers.common.checks import UnknownName
from roofline_helpers.common.show import si
from roofline_helpers.measured.laws import Law, laws_of
from roofline_helpers.measured.tables import group

Floats: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.float64]]"

MOST_DEVICES = 8
"""The most GPUs of one host among which collectives were measured."""
SAME_GPU = {"gb300": "b300"}
"""Chips without measured kernels, each with the chip whose laws predict its whole steps."""
SAME_LINKS = {"gb300": "gb200"}
"""Chips in the same kind of domain as another."""
DOMAINS = {"gb200": 4, "gb300": 4}
"""Chips in domains of NVLink, and how many a host has."""
MOST_OF_DOMAIN = 64
"""The most GPUs of a domain for which the law of its exchanges is used."""
COPIED = "copies over NVLink"
MODES = ("low latency", "throughput", COPIED)
"""Ways to exchange tokens with experts: DeepEP's for decode, its other one, TensorRT-LLM's."""
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
    op: str,
    chip: Chip,
    devices: int,
    tokens: float,
    hidden: int,
    top_k: float,
    width: float = 1.0,
) -> float | None:
    """Return the seconds of the fastest measured kernels for an exchange of experts.

    None where no law was fitted: DeepEP was timed in hosts, of 8 GPUs or of a GB200's 4, and copies
    over NVLink by TensorRT-LLM in a domain of up to 32 GB200. A law is used for fewer GPUs, too,
    and in a domain for twice as many; a GB300 has a GB200's links.

    Parameters
    ----------
    op : {"dispatch", "combine"}
        Tokens to their experts, or results back.
    devices : int
        GPUs that have different experts.
    tokens, top_k : float
        Tokens of one GPU, each for so many experts.
    hidden : int
        Elements of a token.
    width : float
        Bytes of a dispatched element; results have 16 bits.

    Source: `aiconfigurator-core` 0.12.0, `wideep_deepep_*_perf`, `trtllm_alltoall_perf`.

    Examples
    --------
    >>> took = expert_exchange("combine", chip_of("h200"), 8, 100, 7168, 8)
    >>> f"{took * 1e6:.0f} µs"
    '55 µs'
    """
    each, times = hidden * (width if op == "dispatch" else 2.0), []
    for mode in MODES:
        apart = mode == COPIED
        like, most = (SAME_LINKS, MOST_OF_DOMAIN) if apart else (SAME_GPU, MOST_DEVICES)
        if chip.key in DOMAINS and not apart:
            most = DOMAINS[chip.key]
        laws = {law.chip: law for law in laws_of(f"{op}, {mode}")}
        law = laws.get(like.get(chip.key, chip.key))
        if law and 1 < devices <= most:
            nbytes = sent_to_experts(mode, tokens, top_k, devices) * each
            times.append(exchange_seconds(law, chip, nbytes, devices if apart else 1))
    return min(times, default=None)


def sent_to_experts(mode: str, tokens: Any, top_k: Any, devices: Any) -> Any:
    """Return how many copies of tokens a device sends to others in one of `MODES`; arrays work too.

    In low latency each expert gets a copy of its own, else each device.
    """
    copies = top_k if mode == "low latency" else distinct(devices, top_k)
    return tokens * copies * (devices - 1) / devices


def law_of_exchange(kind: str, chip: Chip) -> Law | None:
    """Return the law of a collective over the links of one host; None where none was fitted."""
    laws = {law.chip: law for law in laws_of(kind) if law.dtype == "fp16"}
    return laws.get(SAME_GPU.get(chip.key, chip.key))


def exchange_seconds(law: Law, chip: Chip, link_bytes: float, devices: int) -> float:
    """Return the law's seconds of a collective in which a device sends so many bytes."""
    link = chip.links["nvlink"]
    return float(law.time(0.0, link_bytes / (link.count * link.rate.value), devices - 1))


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
