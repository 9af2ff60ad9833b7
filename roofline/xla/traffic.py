"""Bytes of one launch of a kernel, and the compiler's cycles for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from roofline.xla.collectives import rendezvous
from roofline.xla.flops import (
    aliased,
    combines,
    elements_updated,
    in_place,
    library_product,
    operand_shares,
    results,
    share_met,
)
from roofline.xla.hlo import SLICES, UPDATES, Instruction, Shape, Site
from roofline.xla.pallas import PallasKernel


@dataclass
class Traffic:
    """Bytes read and written by memory level, and the extra bytes of padded tiles in HBM."""

    spaces: Mapping[int, str]
    read: dict[str, int] = field(default_factory=dict)
    written: dict[str, int] = field(default_factory=dict)
    padding: float = 0.0

    @property
    def bytes(self) -> int:
        """Bytes across all memories."""
        return sum(self.read.values()) + sum(self.written.values())

    def add(self, book: dict[str, int], leaf: Shape, share: float) -> None:
        """Add a share of an array to `read` or `written`."""
        if leaf.is_scalar:
            return
        amount = round(leaf.bytes * share)
        level = self.spaces.get(leaf.space, f"S({leaf.space})")
        if amount:
            book[level] = book.get(level, 0) + amount
        if level == "hbm":
            self.padding += (leaf.padded_bytes - leaf.bytes) * share


HOST = "host"
"""The memory level of the host: bytes there cross its link, or are handed to its Python."""


def host_transfer(site: Site) -> tuple[int, int] | None:
    """Return the bytes that an instruction hands to the host's program and takes from it.

    None for one that does neither. A send between slices goes on to other devices.
    """
    instruction = site.instruction
    arrays = [leaf for shape in site.operands for leaf in shape.leaves]
    sides = sum(leaf.bytes for leaf in arrays), results(instruction).bytes
    if instruction.opcode in ("send", "recv") and "is_host_transfer" in instruction.attributes:
        into, out = sum(leaf.bytes for leaf in arrays[:1]), instruction.shape.leaves[0].bytes
        sides = (into, 0) if instruction.opcode == "send" else (0, out)
        return None if rendezvous(instruction) else sides
    if instruction.opcode in ("outfeed", "infeed"):
        return (sides[0], 0) if instruction.opcode == "outfeed" else (0, sides[1])
    return sides if instruction.base == "custom-call" and "callback" in instruction.target else None


def traffic_of(site: Site, spaces: Mapping[int, str], part: str | None = None) -> Traffic:
    """Return the bytes that one launch reads and writes.

    Parameters
    ----------
    site : Site
        The kernel.
    spaces : mapping of int to str
        Memory spaces of its platform, by number (`hlo.SPACES`).
    part : {"start", "between", "done"}, optional
        Its part in a chain around an exchange (`collectives.chain_part`): operands that it only
        passes on count at the start of the exchange.
    """
    written = results(site.instruction).leaves
    reads, writes = _shares(site, written)
    if part is not None:
        outs, ins = aliased(site.instruction)
        writes = [0.0 if number in outs else share for number, share in enumerate(writes)]
        if part != "start":
            reads = [0.0 if number in ins else share for number, share in enumerate(reads)]
    traffic = Traffic(spaces)
    seen: dict[str, float] = {}
    names = site.instruction.operands
    for name, shape, share in zip(names, site.operands, reads, strict=True):
        more = max(share - seen.get(name, 0.0), 0.0)  # the same buffer twice counts once
        seen[name] = max(share, seen.get(name, 0.0))
        for leaf in shape.leaves:
            traffic.add(traffic.read, leaf, more)
    for leaf, share in zip(written, writes, strict=True):
        traffic.add(traffic.written, leaf, share)
    for book, amount in zip(
        (traffic.written, traffic.read), host_transfer(site) or (), strict=False
    ):
        book[HOST] = book.get(HOST, 0) + amount
    return traffic


def pallas_traffic(site: Site, spaces: Mapping[int, str], kernel: PallasKernel) -> Traffic:
    """Return the bytes of a Pallas kernel, counted from its blocks."""
    traffic = Traffic(spaces)
    operands = [shape for shape in site.operands if shape.dims]
    inputs = [operand for operand in kernel.operands if not operand.result]
    reads = [n for n, operand in zip(kernel.reads, inputs, strict=True) if operand.shape]
    for book, shapes, moved in (
        (traffic.read, operands, reads),
        (traffic.written, results(site.instruction).leaves, kernel.writes),
    ):
        for shape, amount in zip(shapes, moved, strict=False):
            for leaf in shape.leaves:
                traffic.add(book, leaf, amount / max(leaf.bytes, 1))
    return traffic


def _shares(site: Site, written: tuple[Shape, ...]) -> tuple[list[float], list[float]]:
    """Return the shares of each operand that is read, and of each result that is written."""
    instruction, operands = site.instruction, site.operands
    reads, writes = operand_shares(site), [1.0] * len(written)
    if site.fused is not None:
        updates = in_place(site.program, site.fused)
        names = site.fused.results
        if len(names) == len(writes):
            writes = [updates[name].share if name in updates else 1.0 for name in names]
    elif instruction.base in SLICES:
        reads[0] = min(1.0, written[0].elements / max(operands[0].elements, 1))
    elif instruction.base in UPDATES:
        share = min(1.0, elements_updated(instruction, site.where) / max(operands[0].elements, 1))
        reads[0] = share if combines(site.program, instruction) else 0.0
        writes = [share] * len(written)
    product = library_product(site)
    if product is not None and product[0].opcode == "convolution" and reads[:1] == [1.0]:
        convolution, lhs, _ = product
        if lhs is operands[0]:
            reads[0] = share_met(convolution, lhs)
    return reads, writes


NEVER = 2**62
"""Cycle counts this large (a century and more) mean unknown."""


def cycles_of(instruction: Instruction) -> int | None:
    """Return the compiler's own estimate for a kernel, in cycles; None without one.

    The compiler may also write the largest integer for "unknown".
    """
    noted = int(instruction.config.get("window_config", {}).get("estimated_cycles", 0) or 0)
    return noted if 0 < noted < NEVER else None
