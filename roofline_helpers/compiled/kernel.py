"""One kernel of a compiled program, and the roofline over it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from roofline_helpers import evidence, hardware, hlo
from roofline_helpers._checks import BadValue, UnknownName
from roofline_helpers.compiled.links import Links
from roofline_helpers.compiled.targets import assumed_vector_peak, clock
from roofline_helpers.dtypes import dtype as dtype_of
from roofline_helpers.roofline import NETWORK, Kernel, Roofline
from roofline_helpers.roofline.model import bound_of
from roofline_helpers.work import Work


@dataclass(frozen=True)
class CompiledKernel(Kernel):
    """One kernel of a compiled program: totals over all its launches.

    FLOPs are None where a custom call does not declare them; the times then hold what is known.
    `read` and `written` are bytes by memory level. The three times are None where they are not
    known: the roofline's (`roof_seconds`), that of the compiler's cycles, and XLA's.

    Parameters
    ----------
    work : hlo.Row
        What the program says of one launch.
    roof : Roofline or None
        The device's ceilings, for the types that its products run in.
    launches : int
        How often it runs – the product of the trip counts of the loops around it.
    chip : hardware.Chip or None
        One device.
    xla_seconds : float, optional
        XLA's `optimal_seconds`, which it gives for a program of a single kernel only.
    link_seconds : float, optional
        Least seconds of one launch's exchange on the links that it runs along. By default its
        bytes over all links of the chip at once.

    Examples
    --------
    >>> from roofline_helpers.compiled import records
    >>> kernel = records()["fuse-chain", "v6e"].kernels[0]
    >>> kernel.name, kernel.hbm_bytes, kernel.bound
    ('add_maximum_fusion', 402653184, 'memory')
    """

    work: hlo.Row
    chip: hardware.Chip | None = None
    xla_seconds: float | None = None
    link_seconds: float | None = None

    @classmethod
    def of(
        cls,
        row: hlo.Row,
        chip: hardware.Chip | None,
        xla_seconds: float | None = None,
        links: Links | None = None,
    ) -> CompiledKernel:
        """Return the kernel that a row of a program is on a device."""
        roof = None if chip is None else ceilings(chip, row.matrix_types)
        exchange = row.collective
        seconds = None if exchange is None or links is None else links.seconds(exchange)
        return cls(row, roof, row.launches, chip, xla_seconds, seconds)

    @cached_property
    def times(self) -> dict[str, float]:
        """Seconds that each ceiling alone would take, by name; "network" by the links it uses."""
        times = dict(super().times)
        if self.link_seconds is not None and self.roof is not None:
            times[NETWORK] = self.link_seconds * self.launches
        return times

    def ceilings(self, *, reached: bool = False) -> Roofline | None:
        """Return the ceilings over it, as published or as they were reached."""
        if self.chip is None or not reached:
            return self.roof
        return ceilings(self.chip, self.row.matrix_types, reached=True)

    @property
    def bound(self) -> str | None:
        """What bounds it – "memory", "compute" or "network".

        None where its FLOPs are unknown, and where it differs by `times_at_most`.
        """
        if self.work.flops.unknown or self.depends or self.limit is None:
            return None
        return bound_of(self.limit)

    @property
    def row(self) -> hlo.Row:
        """What the program says of one launch."""
        return self.work

    @property
    def name(self) -> str:
        """Its name in the compiled program."""
        return self.row.name

    @property
    def operations(self) -> Mapping[str, int]:
        """What happens inside, opcode by opcode."""
        return self.row.operations

    @property
    def matrix_flops(self) -> float:
        """FLOPs of matrix products, and those that a custom call declares without a unit."""
        return self.row.matrix_flops * self.launches

    @property
    def vector_flops(self) -> float:
        """FLOPs of everything else, transcendentals included."""
        return self.row.vector_flops * self.launches

    @property
    def transcendentals(self) -> float:
        """Exponentials and their like."""
        return self.row.flops.transcendentals * self.launches

    @property
    def flops(self) -> float | None:
        """All FLOPs; None if some are unknown."""
        return None if self.row.flops.unknown else self.matrix_flops + self.vector_flops

    @property
    def read(self) -> dict[str, int]:
        """Bytes read, by memory level."""
        return {level: n * self.launches for level, n in self.row.read.items()}

    @property
    def written(self) -> dict[str, int]:
        """Bytes written, by memory level."""
        return {level: n * self.launches for level, n in self.row.written.items()}

    @property
    def traffic(self) -> dict[str, float]:
        """Bytes read and written, by memory level, and bytes sent to other devices."""
        return {level: n * self.launches for level, n in self.row.traffic.items()}

    @property
    def hbm_bytes(self) -> int:
        """Bytes read from and written to HBM, every operand counted once."""
        return self.row.bytes * self.launches

    @property
    def most_bytes(self) -> int:
        """Bytes of HBM at most: more than `hbm_bytes` where data choose blocks (Pallas)."""
        most = self.row.most_bytes
        return self.hbm_bytes if most is None else most * self.launches

    @cached_property
    def times_at_most(self) -> dict[str, float]:
        """`times` with `most_bytes`, and vector work at an assumed peak where none is published."""
        if self.roof is None or self.chip is None:
            return self.times
        times = {**self.times}
        if self.row.most_bytes is not None:
            times["hbm"] = self.most_bytes / self.roof.bandwidth
        assumed = assumed_vector_peak(self.chip)
        if assumed is not None and self.vector_flops:
            times["vector"] = self.vector_flops / assumed[0]
        return times

    @property
    def most_seconds(self) -> float | None:
        """Least seconds by `times_at_most`; None where the device is not known."""
        return None if self.roof is None else max(self.times_at_most.values(), default=0.0)

    @property
    def most_limit(self) -> str | None:
        """The ceiling that it meets first by `times_at_most`."""
        return max(self.times_at_most, key=lambda each: self.times_at_most[each], default=None)

    @property
    def depends(self) -> bool:
        """Whether `limit` and `most_limit` are bounds of two kinds, so that there is no verdict."""
        ends = {bound_of(limit) for limit in (self.limit, self.most_limit) if limit is not None}
        return len(ends) > 1

    @property
    def limits(self) -> str:
        """The ceilings that it may meet first: `limit`, and `most_limit` where it depends."""
        return f"{self.limit} or {self.most_limit}" if self.depends else self.limit or ""

    @property
    def tiled_bytes(self) -> int:
        """HBM bytes with the re-reads that the tiles imply, where they are known."""
        again = self.row.tile_read
        read = self.row.read.get("hbm", 0) if again is None else max(again, 0)
        return (read + self.row.written.get("hbm", 0)) * self.launches

    @property
    def intensity(self) -> float | None:
        """FLOPs over HBM bytes; None where FLOPs are unknown or nothing crosses HBM."""
        return self.flops / self.hbm_bytes if self.flops is not None and self.hbm_bytes else None

    @property
    def cycle_seconds(self) -> float | None:
        """The compiler's own estimate – its cycles at the chip's clock."""
        ticks = clock(self.chip)
        if self.row.cycles is None or ticks is None:
            return None
        return self.row.cycles * self.launches / ticks[0]

    @property
    def cycles_hold(self) -> bool:
        """Whether cycles were held against published times of such kernels – large products."""
        return self.row.cycles is not None and self.row.matrix_flops >= evidence.HELD_FROM

    def as_work(self) -> Work:
        """Return the kernel as a `Work`, for plots and rooflines.

        Raises
        ------
        BadValue
            It moves no bytes of HBM.
        """
        if not self.hbm_bytes:
            raise BadValue(f"{self.name} moves no bytes of HBM: it has no place on this roofline")
        read, written = self.read.get("hbm", 0), self.written.get("hbm", 0)
        return Work(
            self.name,
            reads={"operands": read} if read else {},
            writes={"results": written} if written else {},
            matrix_flops=self.matrix_flops,
            vector_flops=self.vector_flops,
            transcendentals=self.transcendentals,
            dtype=main_dtype(self.row.matrix_types) or "fp32",
        )


def ceilings(
    chip: hardware.Chip, matrix_types: Sequence[str], *, reached: bool = False
) -> Roofline | None:
    """Return the roofline of a device for products as HLO states them.

    Parameters
    ----------
    chip : hardware.Chip
        One device.
    matrix_types : sequence of str
        For instance ``["f32 highest"]``, six passes over a TPU's bf16 unit.
    reached : bool
        Measured ceilings where there are any, instead of published ones.

    Returns
    -------
    Roofline or None
        Its peak is that of the slowest of these products, and of bf16 where there is none. None
        where the bandwidth of HBM is not published.
    """
    if reached:
        chip = _reached(chip)
    vector = chip.vector.get("fp32")
    link = chip.links.get("ici") or chip.links.get("nvlink")
    bandwidth = chip.memory["hbm"].bandwidth
    if bandwidth is None:
        return None
    return Roofline(
        peak=_matrix_peak(chip, matrix_types),
        levels={"hbm": bandwidth.value},
        vector=vector.value if vector else None,
        network=float(link) if link else None,
        floor=chip.floor.value if chip.floor else None,
        name=" ".join([chip.name, *matrix_types]),
    )


def _reached(chip: hardware.Chip) -> hardware.Chip:
    """Return a chip whose peaks and bandwidth are those that were reached, where any were."""
    stream, hbm = chip.reached.stream(), chip.memory["hbm"]
    matrix, measured = dict(chip.matrix), chip.reached.matrix
    if "bf16" in measured and "fp32" in matrix and "tf32" not in matrix:  # passes over that unit
        share = measured["bf16"].value / matrix["bf16"].value
        matrix["fp32"] = replace(matrix["fp32"], value=matrix["fp32"].value * share)
    return replace(
        chip,
        matrix={**matrix, **measured},
        vector={**chip.vector, **chip.reached.vector},
        memory={**chip.memory, "hbm": replace(hbm, bandwidth=stream or hbm.bandwidth)},
    )


def main_dtype(matrix_types: Sequence[str]) -> str | None:
    """Return the type of the first product of a kernel, in this package's words; None without."""
    return _dtypes(matrix_types[0])[0] if matrix_types else None


def _matrix_peak(chip: hardware.Chip, matrix_types: Sequence[str]) -> float:
    """Return the FLOP/s of the slowest of these products."""
    wide = chip.matrix["bf16" if "bf16" in chip.matrix else next(iter(chip.matrix))].value
    table = {name: figure.value for name, figure in {**chip.vector, **chip.matrix}.items()}
    peaks = []
    for product in matrix_types:
        names, precision = _dtypes(product), product.partition(" ")[2]
        if chip.kind == "tpu" and "fp32" in names:
            peaks.append(wide / {"high": 3, "highest": 6}.get(precision, 1))  # bf16 passes
            continue
        if names == ["fp32"] and not precision and "tf32" in chip.matrix:
            names = ["tf32"]  # JAX's default on GPUs
        peaks.append(min(table.get(name, wide) for name in names))
    return min(peaks, default=wide)


_HLO_DTYPES = {"u8": "int8", "u4": "int4", "u32": "int32", "u16": "int16", "u64": "int64"}


def _dtypes(product: str) -> list[str]:
    """Return the types of a product such as "bf16×s8 highest", in this package's words."""
    return [_dtype(name) for name in product.split()[0].split("×")]


def _dtype(name: str) -> str:
    if name.startswith(("f8", "f4")):
        return f"fp{name[1]}"
    try:
        return dtype_of(_HLO_DTYPES.get(name, name))
    except UnknownName:
        return "fp32"  # complex numbers and rarer types run as fp32
