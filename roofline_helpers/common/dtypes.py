"""Data types: their names, and the bytes that one element takes in memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from roofline_helpers.common.checks import LARGEST, BadType, Number, name_of, shown, size

BITS: dict[str, float] = {
    "fp64": 64,
    "fp32": 32,
    "tf32": 32,  # stored as fp32; only the matrix unit rounds it to 19 bits
    "bf16": 16,
    "fp16": 16,
    "fp8": 8,
    "fp8 in blocks": 8,  # one fp32 scale for 128² weights, or 128 activations
    "fp4": 4,
    "mxfp8": 8.25,  # one 8-bit scale for 32 elements
    "mxfp4": 4.25,
    "nvfp4": 4.5,  # one fp8 scale for 16 elements
    "int64": 64,
    "int32": 32,
    "int16": 16,
    "int8": 8,
    "int4": 4,
    "bool": 8,
}
"""Bits that one element takes in memory, by data type, its share of a block's scale included."""

COMPUTED = {"fp8 in blocks": "fp8", "mxfp8": "fp8", "mxfp4": "fp4", "nvfp4": "fp4"}
"""Types with scales, and the one that the matrix unit multiplies them as.

The blocks are DeepSeek-V3's: arXiv:2412.19437, section 3.3.2.

Sources: Open Compute Project, "OCP Microscaling Formats (MX) Specification", version 1.0, 2023
(blocks of 32 elements, E8M0 scales); NVIDIA, "Introducing NVFP4 for efficient and accurate
low-precision inference", 2025 (blocks of 16, E4M3 scales; one fp32 scale a tensor is left out).
"""

SPELLINGS = {
    "fp64": ["float64", "f64", "double"],
    "fp32": ["float32", "f32", "float"],
    "tf32": ["tensorfloat32"],
    "bf16": ["bfloat16"],
    "fp16": ["float16", "f16", "half"],
    "fp8": [
        *("float8", "f8", "f8e4m3fn", "f8e5m2", "float8_e4m3", "float8_e4m3fn", "float8_e5m2"),
        *("float8_e4m3b11fnuz", "float8_e4m3fnuz", "float8_e5m2fnuz"),
    ],
    "fp4": ["float4_e2m1fn"],
    "int64": ["s64", "uint64"],
    "int32": ["s32", "uint32"],
    "int16": ["s16", "uint16"],
    "int8": ["s8", "uint8"],
    "int4": ["s4", "uint4"],
    "bool": ["pred"],
}
"""Other spellings of a type: NumPy's and JAX's names, and the letters that HLO uses."""

ALIASES = {spelling: name for name, others in SPELLINGS.items() for spelling in others}


def dtype(given: Any) -> str:
    """Return the name in `BITS` of a data type: of any spelling, or of NumPy's or JAX's type.

    Examples
    --------
    >>> dtype("bfloat16"), dtype(np.float32)
    ('bf16', 'fp32')
    """
    if isinstance(given, str) and given in BITS:
        return given
    if not isinstance(given, str):
        kind = given if isinstance(given, type) else getattr(given, "dtype", given)
        if not isinstance(kind, type | np.dtype):
            raise BadType(
                f"a data type must be a name or a NumPy or JAX dtype, got {shown(given)}. "
                f"Allowed: {', '.join(BITS)}"
            )
        given = np.dtype(kind).name
    return name_of("data type", given, BITS, ALIASES)


def nbytes(elements: Number, given: Any) -> Number:
    """Return the bytes that `elements` of a data type take, rounded up to whole bytes.

    Parameters
    ----------
    elements : int or array
        How many.
    given : str or data type
        A name of `BITS`, another spelling ("bfloat16", "float8_e4m3fn"), or a NumPy or JAX data
        type.

    Raises
    ------
    BadType, BadValue, UnknownName
        Not a whole positive number of elements; not a data type.

    Examples
    --------
    >>> nbytes(3, "bf16"), nbytes(3, "int4"), nbytes(64, "mxfp4")
    (6, 2, 34)
    """
    quarters = int(4 * BITS[dtype(given)])  # of a bit: whole in all types
    return -(-size("elements", elements, LARGEST) * quarters // 32)  # rounded up


def width(given: str) -> float:
    """Return the bytes of one element, of the type of that name."""
    return BITS[given] / 8


def computed_as(given: Any) -> str:
    """Return the type that a matrix unit multiplies a data type as: that of `COMPUTED`, or itself.

    Examples
    --------
    >>> computed_as("nvfp4"), computed_as("bf16")
    ('fp4', 'bf16')
    """
    name = dtype(given)
    return COMPUTED.get(name, name)
