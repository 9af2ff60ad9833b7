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

COMPUTED = {"mxfp8": "fp8", "mxfp4": "fp4", "nvfp4": "fp4"}
"""Types with scales, and the one that the matrix unit multiplies them as.

Sources: Open Compute Project, "OCP Microscaling Formats (MX) Specification", version 1.0, 2023
(blocks of 32 elements, E8M0 scales); NVIDIA, "Introducing NVFP4 for efficient and accurate
low-precision inference", 2025 (blocks of 16, E4M3 scales; one fp32 scale a tensor is left out).
"""

ALIASES = {
    "float64": "fp64",
    "f64": "fp64",
    "double": "fp64",
    "float32": "fp32",
    "f32": "fp32",
    "float": "fp32",
    "tensorfloat32": "tf32",
    "bfloat16": "bf16",
    "float16": "fp16",
    "f16": "fp16",
    "half": "fp16",
    "float8": "fp8",
    "f8": "fp8",
    "float8_e4m3fn": "fp8",
    "float8_e5m2": "fp8",
    "float8_e4m3": "fp8",
    "float8_e4m3b11fnuz": "fp8",
    "float8_e4m3fnuz": "fp8",
    "float8_e5m2fnuz": "fp8",
    "f8e4m3fn": "fp8",
    "f8e5m2": "fp8",
    "float4_e2m1fn": "fp4",
    "s64": "int64",
    "uint64": "int64",
    "s32": "int32",
    "uint32": "int32",
    "s16": "int16",
    "uint16": "int16",
    "s8": "int8",
    "uint8": "int8",
    "s4": "int4",
    "uint4": "int4",
    "pred": "bool",
}
"""Other spellings: NumPy's and JAX's names, and the letters that HLO uses."""


def dtype(given: Any) -> str:
    """Return this package's name of a data type.

    Parameters
    ----------
    given : str or data type
        A name ("bf16", "bfloat16", "float8_e4m3fn") or a NumPy or JAX data type.

    Returns
    -------
    str
        One of `BITS`.

    Raises
    ------
    UnknownName
        No such data type; the message gives the nearest.
    BadType
        Not a name and not a data type.

    Examples
    --------
    >>> dtype("bfloat16"), dtype(np.float32)
    ('bf16', 'fp32')
    """
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

    Returns
    -------
    int or array
        ⌈elements · bits / 8⌉.

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
    """Return the bytes of one element, of the type of that name.

    Examples
    --------
    >>> width("bf16"), width("int4")
    (2.0, 0.5)
    """
    return BITS[given] / 8


def computed_as(given: Any) -> str:
    """Return the type that a matrix unit multiplies a data type as: that of `COMPUTED`, or itself.

    Raises
    ------
    UnknownName, BadType
        As `dtype`.

    Examples
    --------
    >>> computed_as("nvfp4"), computed_as("bf16")
    ('fp4', 'bf16')
    """
    name = dtype(given)
    return COMPUTED.get(name, name)
