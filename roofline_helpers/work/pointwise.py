"""Operations on each element by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from roofline_helpers._checks import BadType, BadValue, Number, fitting, quantity, shown, size
from roofline_helpers.dtypes import nbytes
from roofline_helpers.work.costs import per_element
from roofline_helpers.work.work import Work


def elementwise(
    n: Any,
    reads: int | Mapping[str, Any] = 1,
    writes: int | Mapping[str, Any] = 1,
    flops: Any = 1,
    dtype: Any = "bf16",
    *,
    transcendentals: Any = 0,
    name: str = "elementwise",
) -> Work:
    """Count one pass over `n` elements: n · flops FLOPs, each tensor once.

    Parameters
    ----------
    n : int or array
        Elements of each tensor.
    reads, writes : int or mapping of str to data type
        How many tensors of n elements, all of type `dtype`; or their names and types.
    flops : number
        FLOPs per element, for the whole chain of operations in the kernel. 0 is a copy.
    dtype : str or data type
        Type of the tensors that are given by number, and of the arithmetic.
    transcendentals : number
        How many of the FLOPs per element are transcendental.

    Raises
    ------
    BadType, BadValue, UnknownName
        n is not a whole number from 1 to 10¹⁸; no tensor at all, or more than 1000; more
        transcendentals than FLOPs; no such data type.

    Examples
    --------
    >>> copy = elementwise(4096, flops=0)
    >>> copy.bytes, copy.flops
    (16384, 0)
    """
    n = size("n", n)
    flops = quantity("flops per element", flops, zero=True)
    special = quantity("transcendentals per element", transcendentals, zero=True)
    fitting([("n", n), ("flops", flops), ("transcendentals", special)])
    return Work(
        name=name,
        reads=_tensors("reads", reads, "x", n, dtype),
        writes=_tensors("writes", writes, "y", n, dtype),
        vector_flops=n * flops,
        transcendentals=n * special,
        dtype=dtype,
    )


def _tensors(what: str, tensors: Any, letter: str, n: Number, dtype: Any) -> dict[str, Number]:
    if isinstance(tensors, Mapping):
        return {tensor: nbytes(n, each_type) for tensor, each_type in tensors.items()}
    allowed = "a count of tensors from 0 to 1000, or a mapping of names to data types"
    if not isinstance(tensors, int | np.integer) or isinstance(tensors, bool):
        raise BadType(f"{what} must be {allowed}, got {shown(tensors)}")
    if not 0 <= tensors <= 1000:
        raise BadValue(f"{what} must be {allowed}, got {shown(tensors)}")
    count = int(tensors)
    names = [letter] if count == 1 else [f"{letter}{i}" for i in range(count)]
    return {tensor: nbytes(n, dtype) for tensor in names}


def _pointwise(op: str, n: Any, reads: Sequence[str], write: str, dtype: Any) -> Work:
    flops, special = per_element(op)
    inputs = dict.fromkeys(reads, dtype)
    return elementwise(n, inputs, {write: dtype}, flops, dtype, transcendentals=special, name=op)


def relu(n: Any, dtype: Any = "bf16", *, x: str = "x", y: str = "y") -> Work:
    """Count max(x, 0) on n elements: 1 FLOP each; one tensor in, one out.

    Examples
    --------
    >>> relu(4096).bytes, relu(4096).flops
    (16384, 4096)
    """
    return _pointwise("relu", n, [x], y, dtype)


def gelu(n: Any, dtype: Any = "bf16", *, x: str = "x", y: str = "y") -> Work:
    """Count GELU in its tanh form on n elements: 9 FLOPs each, one of them a tanh.

    Source: D. Hendrycks, K. Gimpel, arXiv:1606.08415.

    Examples
    --------
    >>> job = gelu(4096)
    >>> job.flops, job.transcendentals
    (36864, 4096)
    """
    return _pointwise("gelu", n, [x], y, dtype)


def swiglu(n: Any, dtype: Any = "bf16", *, gate: str = "g", up: str = "u", y: str = "y") -> Work:
    """Count silu(gate) · up on n elements: 5 FLOPs each, one of them an exponential.

    Source: N. Shazeer, arXiv:2002.05202.

    Examples
    --------
    >>> job = swiglu(4096)
    >>> job.bytes, job.flops
    (24576, 20480)
    """
    return _pointwise("swiglu", n, [gate, up], y, dtype)


def add(n: Any, dtype: Any = "bf16", *, x: str = "x0", other: str = "x1", y: str = "y") -> Work:
    """Count x + other on n elements: 1 FLOP each; two tensors in, one out.

    Examples
    --------
    >>> add(4096).bytes
    24576
    """
    return _pointwise("add", n, [x, other], y, dtype)


def dropout(
    n: Any,
    dtype: Any = "bf16",
    *,
    mask: Any = None,
    x: str = "x",
    mask_name: str = "mask",
    y: str = "y",
) -> Work:
    """Count x · mask / (1 − p) on n elements: 2 FLOPs each; x and the mask in, one tensor out.

    Parameters
    ----------
    mask : str or data type, optional
        Type of the mask as it is stored; that of x if not given.

    Examples
    --------
    >>> dropout(4096, mask="int8").bytes
    20480
    """
    reads = {x: dtype, mask_name: dtype if mask is None else mask}
    flops, _ = per_element("dropout")
    return elementwise(n, reads, {y: dtype}, flops, dtype, name="dropout")
