"""The rooflines over one device of a chip, by the types of matmuls as HLO writes them."""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from dataclasses import replace

import msgspec

from roofline_helpers import chips
from roofline_helpers.chips import chip as chip_of
from roofline_helpers.common.checks import UnknownName
from roofline_helpers.common.dtypes import dtype as dtype_of
from roofline_helpers.measured.kernels import kernel_laws
from roofline_helpers.measured.laws import Law, law_of, least_times
from roofline_helpers.measured.tables import count, group
from roofline_helpers.roofline import Roofline
from roofline_helpers.work import matmul


class DeviceRoofs:
    """The rooflines over one device: a program's kernels with matmuls of the same types share one.

    Parameters
    ----------
    chip : Chip or None
        One device of a chip; None if it is not in the table, and then nothing has a roof.

    Examples
    --------
    >>> device = DeviceRoofs(chips.chip("v6e").per_device())
    >>> device.over(["bf16"]) is device.over(["bf16"])
    True
    """

    def __init__(self, chip: chips.Chip | None) -> None:
        self.chip = chip
        self._made: dict[tuple[tuple[str, ...], bool], Roofline | None] = {}

    def over(self, matrix_types: Sequence[str], *, reached: bool = False) -> Roofline | None:
        """Return the roofline over kernels with matmuls of HLO's types; None if it isn't known.

        Reached ones are those of `reached_roof`, others as published.
        """
        if self.chip is None:
            return None
        key = tuple(matrix_types), reached
        if key not in self._made:
            made = reached_roof if reached else chip_roofline
            self._made[key] = made(self.chip, matrix_types)
        return self._made[key]


def least_kernel(chip: chips.Chip) -> float:
    """Return the seconds that the smallest kernels take on a GPU: a tenth of them take less.

    Of a chip whose kernels weren't measured, that of an H100.

    Examples
    --------
    >>> 0.7e-6 < least_kernel(chip_of("h200")) <= least_kernel(chip_of("h100")) < 1.3e-6
    True
    """
    known = kernel_laws().least
    return known.get(chip.key, known["h100"])


def chip_roofline(
    chip: chips.Chip, matrix_types: Sequence[str], *, reached: bool = False
) -> Roofline | None:
    """Return the roofline of a device for matmuls of HLO's types.

    Parameters
    ----------
    chip : Chip
        One device.
    matrix_types : sequence of str
        For instance ``["f32 highest"]``, six passes over a TPU's bf16 unit.
    reached : bool
        Measured ceilings, if there are any, instead of published ones.

    Returns
    -------
    Roofline or None
        Its peak is that of the slowest of these matmuls, or of bf16 without any. None if the
        bandwidth of HBM is not published.
    """
    if chip.memory["hbm"].bandwidth is None:
        return None
    wide = "bf16" if "bf16" in chip.matrix else next(iter(chip.matrix))
    roof = chip.roofline(wide, reached=reached)

    def peak(product: str) -> float:
        names, precision = _dtypes(product), product.partition(" ")[2]
        if chip.kind == "tpu" and "fp32" in names:
            return roof.peak / {"high": 3, "highest": 6}.get(precision, 1)  # bf16 passes
        if names == ["fp32"]:
            names = [type_on(product, chip.matrix)]
        known = [name for name in names if name in chip.matrix or name in chip.vector]
        peaks = [chip.roofline(name, reached=reached).peak for name in known]
        slowest = min([*peaks, roof.peak] if len(known) < len(names) else peaks)
        return slowest / passes_of(product)

    link = chip.links.get("ici") or chip.links.get("nvlink")
    floor = least_kernel(chip) if chip.kind == "gpu" else roof.floor
    return replace(
        roof,
        floor=floor,
        peak=min(map(peak, matrix_types), default=roof.peak),
        network=float(link) if link else None,
        name=" ".join([chip.name, *matrix_types]),
    )


PASSES = {"x3": 3, "x6": 6, "x9": 1}
"""Products that an algorithm makes of one: "x9" is a single one where XLA has no kernel for it, as
on an H200 (evidence "settings", its "precisions")."""


def passes_of(product: str) -> int:
    """Return how many products a product such as "bf16 x3" takes at least."""
    return PASSES.get(product.partition(" ")[2], 1)


def type_on(product: str, types: Collection[str]) -> str:
    """Return the type at whose rate a product runs on a device that has these types.

    NVIDIA's GPUs multiply fp32 in TF32 unless the highest precision is asked for.

    Examples
    --------
    >>> [type_on(product, ["bf16", "tf32", "fp32"]) for product in ("f32 high", "f32 highest")]
    ['tf32', 'fp32']
    """
    first, precision = _dtypes(product)[0], product.partition(" ")[2]
    tf32 = first == "fp32" and "tf32" in types and precision in ("", "high")
    return "tf32" if tf32 else first


def main_dtype(matrix_types: Sequence[str]) -> str | None:
    """Return this package's name for the type of a kernel's first matmul; None without one."""
    return _dtypes(matrix_types[0])[0] if matrix_types else None


_HLO_DTYPES = {
    "c64": "fp32",
    "c128": "fp64",
    "u8": "int8",
    "u4": "int4",
    "u32": "int32",
    "u16": "int16",
    "u64": "int64",
}


def _dtypes(product: str) -> list[str]:
    """Return this package's names for the types of a matmul such as "bf16×s8 highest"."""
    return [_dtype(name) for name in product.split()[0].split("×")]


def _dtype(name: str) -> str:
    if name.startswith(("f8", "f4")):
        return f"fp{name[1]}"
    try:
        return dtype_of(_HLO_DTYPES.get(name, name))
    except UnknownName:
        return "fp32"  # rarer types run as fp32


def reached_roof(chip: chips.Chip, matrix_types: Sequence[str]) -> Roofline | None:
    """Return the reached roofline for matmuls of HLO's types (`chip_roofline`).

    On a GPU its peak is the best measured matmul's, if that is above the sustained one.
    """
    roof = chip_roofline(chip, matrix_types, reached=True)
    if roof is None or len(matrix_types) != 1 or "×" in matrix_types[0]:
        return roof
    best = best_peak(chip, type_on(matrix_types[0], chip.matrix))
    if best is None:
        return roof
    return replace(roof, peak=max(roof.peak, best / passes_of(matrix_types[0])))


def best_peak(chip: chips.Chip, dtype: str) -> float | None:
    """Return the FLOP/s of the best measured matmul of a GPU in a type; None without any.

    TF32 wasn't measured: it counts with bf16's share of its peak, on the same unit.

    Examples
    --------
    >>> f"{best_peak(chips.chip('h200'), 'bf16') / 1e12:.0f} TFLOP/s"
    '852 TFLOP/s'
    """
    if chip.kind != "gpu" or dtype not in chip.matrix:
        return None
    measured = "bf16" if dtype == "tf32" else dtype
    law = law_of(matmul(4096, 4096, 4096, measured), chip)
    return None if law is None else at_best(law).compute * chip.roofline(dtype).peak


@functools.cache
def at_best(law: Law) -> Law:
    """Return a law whose large kernels reach what the best measured one of its group does.

    Examples
    --------
    >>> from roofline_helpers.measured import law
    >>> fitted = law("matmul", "h200", "bf16")
    >>> round(fitted.compute, 2), round(at_best(fitted).compute, 2)
    (0.8, 0.86)
    """
    rows = group(law.family, law.chip, law.dtype)
    if not len(rows["seconds"]):  # a TPU's published points
        return law
    times, _ = least_times(count(law.family, rows, law.dtype), chip_of(law.chip))
    return msgspec.structs.replace(law, compute=float((times / rows["seconds"]).max()))
