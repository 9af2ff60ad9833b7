"""One kernel out of several: fused, or added up."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace
from typing import Any

import numpy as np

from roofline_helpers._checks import (
    BadType,
    BadValue,
    Number,
    always,
    fitting,
    name_of,
    plain,
    shown,
)
from roofline_helpers.dtypes import BITS
from roofline_helpers.work.work import Work


def fuse(*kernels: Work, keep: Sequence[str] = (), name: str | None = None) -> Work:
    """Return the one kernel that does what `kernels` do one after another.

    Its bytes are those of the tensors that enter (read, and not made inside) and leave (made, and
    not read again inside). FLOPs and bytes over the network add up; traffic at on-chip levels
    changes with fusion in ways that no rule gives, so it is dropped.

    Parameters
    ----------
    *kernels : Work
        In order. Tensors are matched by name. One that several kernels read is read once, or as
        often as the kernel that makes the most passes over it.
    keep : sequence of str
        Tensors made inside that are needed outside too, and so are written all the same.
    name : str, optional
        By default the kernels' names joined with "+".

    Raises
    ------
    BadType
        Nothing to fuse, or something that isn't a `Work`.
    BadValue
        Two tensors of one name and different size, or a tensor made twice.
    UnknownName
        `keep` names a tensor that no kernel makes.

    Examples
    --------
    >>> from roofline_helpers.work import elementwise
    >>> chain = [elementwise(10**6, {"x": "fp32"}, {"t": "fp32"}),
    ...          elementwise(10**6, {"t": "fp32", "bias": "fp32"}, {"y": "fp32"})]
    >>> sum(kernel.bytes for kernel in chain), fuse(*chain).bytes
    (20000000, 12000000)
    """
    all_work(kernels)
    if isinstance(keep, str) or not isinstance(keep, Sequence | Set):
        raise BadType(f"keep must be a sequence of tensor names, got {shown(keep)}")
    sizes: dict[str, Number] = {}
    made: dict[str, Number] = {}
    entering: dict[str, Number] = {}
    passes: dict[str, Number] = {}
    consumed: set[str] = set()
    for kernel in kernels:
        for tensor, n in [*kernel.reads.items(), *kernel.writes.items()]:
            if not always(sizes.setdefault(tensor, n) == n):
                raise BadValue(f"tensor {tensor!r} has {sizes[tensor]} bytes and then {n}")
        for tensor, n in kernel.reads.items():
            if tensor in made:
                consumed.add(tensor)
            else:
                entering[tensor] = n
                again = np.maximum(passes.get(tensor, 1), kernel.passes.get(tensor, 1))
                passes[tensor] = plain(again)
        for tensor, n in kernel.writes.items():
            if tensor in made:
                raise BadValue(f"tensor {tensor!r} is made twice: give the second another name")
            made[tensor] = n
    kept = {name_of("tensor made in this chain", tensor, made) for tensor in keep}
    leaving = {t: n for t, n in made.items() if t not in consumed or t in kept}
    return replace(
        _summed(kernels, name or "+".join(kernel.name for kernel in kernels)),
        reads=entering,
        writes=leaving,
        passes=passes,
        others={k: v for k, v in _traffic(kernels).items() if k == "network"},
    )


def total(*kernels: Work, name: str = "total") -> Work:
    """Return the sum of kernels that run one after another: FLOPs and bytes add up.

    The intensity of the sum is what a whole layer or model has. Its time on a roofline is a
    looser bound than the sum of the kernels' times, which `Roofline.time(*kernels)` gives.

    Raises
    ------
    BadType, BadValue
        No kernel, or something that isn't a `Work`; arrays whose shapes don't fit.

    Examples
    --------
    >>> from roofline_helpers.work import gelu, matmul
    >>> both = total(matmul(1024, 1024, 1024), gelu(1024 * 1024))
    >>> both.flops
    2156920832
    """
    all_work(kernels)
    return replace(
        _summed(kernels, name),
        reads={"all that is read": sum(kernel.read_bytes for kernel in kernels)},
        writes={"all that is written": sum(kernel.written_bytes for kernel in kernels)},
        others={k: v for k, v in _traffic(kernels).items() if k != "hbm"},
    )


def all_work(kernels: Sequence[Any]) -> None:
    """Raise unless there is at least one kernel and all are `Work`, of fitting shapes."""
    if not kernels:
        raise BadType("at least one kernel is needed, got none")
    for kernel in kernels:
        if not isinstance(kernel, Work):
            raise BadType(f"a kernel must be a Work, got {shown(kernel)}")
    for count in ("flops", "bytes"):
        fitting((f"{count} of {kernel.name}", getattr(kernel, count)) for kernel in kernels)


def _summed(kernels: Sequence[Work], name: str) -> Work:
    widest = max(kernels, key=lambda k: (np.any(np.greater(k.matrix_flops, 0)), BITS[k.dtype]))
    return replace(
        kernels[0],
        name=name,
        matrix_flops=sum(k.matrix_flops for k in kernels),
        vector_flops=sum(k.vector_flops for k in kernels),
        transcendentals=sum(k.transcendentals for k in kernels),
        dtype=widest.dtype,
        passes={},
        kind="",
        dims={},
    )


def _traffic(kernels: Sequence[Work]) -> dict[str, Number]:
    sums: dict[str, Number] = {}
    for kernel in kernels:
        for level, n in kernel.traffic.items():
            sums[level] = sums.get(level, 0) + n
    return sums
