"""Kernels fused into one, added up, and with the tensors between them on the chip."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from roofline_helpers.common.checks import (
    BadType,
    BadValue,
    Number,
    all_true,
    broadcast,
    name_of,
    plain,
    shown,
    single,
    sizes,
)
from roofline_helpers.common.dtypes import BITS
from roofline_helpers.work.operations import add, dropout, gelu, layernorm
from roofline_helpers.work.work import Work

# --- One kernel out of several: fused, or added up -----------------------------------------------


def fuse(*kernels: Work, keep: Sequence[str] = (), name: str | None = None) -> Work:
    """Return one kernel with the work of `kernels`.

    Its bytes are those of the tensors that enter (read, not written inside) and leave (written, not
    read again inside). FLOPs and bytes over the network add up; on-chip traffic is dropped, since
    no rule gives it.

    Parameters
    ----------
    *kernels : Work
        In order. Tensors are matched by name, and read as often as by the kernel with the most
        passes.
    keep : sequence of str
        Tensors written inside that are needed outside too, and so count as written.
    name : str, optional
        By default the kernels' names joined with "+".

    Raises
    ------
    BadType
        Nothing to fuse, or something that isn't a `Work`.
    BadValue
        Two tensors of one name and different size, or a tensor made twice; arrays that don't fit.
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
    bytes_of: dict[str, Number] = {}
    made: dict[str, Number] = {}
    entering: dict[str, Number] = {}
    passes: dict[str, Number] = {}
    consumed: set[str] = set()
    for kernel in kernels:
        for tensor, n in [*kernel.reads.items(), *kernel.writes.items()]:
            if not all_true(bytes_of.setdefault(tensor, n) == n):
                raise BadValue(f"tensor {tensor!r} has {bytes_of[tensor]} bytes and then {n}")
        for tensor, n in kernel.reads.items():
            if tensor in made:
                consumed.add(tensor)
            else:
                entering[tensor] = n
                most = np.maximum(passes.get(tensor, 1), kernel.passes.get(tensor, 1))
                passes[tensor] = plain(most)
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


def total(*kernels: Work) -> Work:
    """Return the sum of kernels that run one after another: FLOPs and bytes add up.

    Its time on a roofline is a looser bound than the sum of theirs, `Roofline.time(*kernels)`.
    Errors as in `fuse`.

    Examples
    --------
    >>> from roofline_helpers.work import gelu, matmul
    >>> both = total(matmul(1024, 1024, 1024), gelu(1024 * 1024))
    >>> both.flops
    2156920832
    """
    all_work(kernels)
    return replace(
        _summed(kernels, "total"),
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
        broadcast((f"{count} of {kernel.name}", getattr(kernel, count)) for kernel in kernels)


def _summed(kernels: Sequence[Work], name: str) -> Work:
    def width(kernel: Work) -> tuple[bool, float]:
        return bool(np.any(np.greater(kernel.matrix_flops, 0))), BITS[kernel.dtype]

    widest = max(kernels, key=width)
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


# --- The kernels that this book fuses ------------------------------------------------------------


def fusion_chain(
    rows: Any, columns: Any, dtype: Any = "bf16", *, mask: Any = None
) -> tuple[Work, ...]:
    """Count this book's chain, x → LayerNorm → GELU → dropout → + residual, as four kernels.

    Parameters
    ----------
    rows, columns : int or array
        Shape of x.
    dtype, mask : str or data type
        Type of x, residual and y; type of the mask, that of x if not given.

    Examples
    --------
    >>> from roofline_helpers.work import fuse, total
    >>> four = fusion_chain(65536, 4096)
    >>> round(total(*four).bytes / fuse(*four).bytes, 3)
    2.5
    """
    rows, columns = sizes(rows=rows, columns=columns).values()
    return (
        layernorm(rows, columns, dtype, y="a"),
        gelu(rows * columns, dtype, x="a", y="b"),
        dropout(rows * columns, dtype, mask=mask, x="b", y="c"),
        add(rows * columns, dtype, x="c", other="residual"),
    )


# --- Tensors that stay on the chip between kernels -----------------------------------------------


def resident(
    *kernels: Work,
    capacity: float,
    level: str = "vmem",
    onward: Sequence[str] = (),
    travels: Sequence[str] = (),
) -> tuple[Work, ...]:
    """Return kernels with the tensors between them on the chip, if they fit.

    A tensor that one kernel writes and a later one reads, or that several read, stays from its
    first kernel to its last if there is room for all of it beside the others that stay at that
    time, the smallest first. That is the least that a program moves; the kernels by themselves,
    with every tensor at the main memory, are the most. Real programs are in between: a compiler
    places tensors by the program at hand, and a cache also holds what is only streamed through it.

    Parameters
    ----------
    *kernels : Work
        In order; tensors are matched by name. A kernel may read a part of one.
    capacity : float
        Bytes on the chip for such tensors.
    level : str
        The level in which they stay; their bytes count there, as `Work.others`.
    onward : sequence of str
        Tensors that the next program reads, and that stay until the end if they fit.
    travels : sequence of str
        Tensors that never stay, such as weights.

    Raises
    ------
    BadType
        As `fuse`; counts that are arrays.
    UnknownName
        `onward` names a tensor that no kernel makes.

    Examples
    --------
    >>> from roofline_helpers.work import naive_attention, flash_attention
    >>> three = naive_attention(4, 512, heads=32, head_dim=64)
    >>> stay = resident(*three, capacity=2**27)
    >>> sum(k.bytes for k in three) / 2**20, sum(k.bytes for k in stay) / 2**20
    (288.0, 32.0)
    """
    all_work(kernels)
    room = single("capacity", capacity, zero=True)
    tensors = _tensors(kernels)
    written = [name for name, tensor in tensors.items() if tensor.made]
    for name in onward:
        tensor = tensors[name_of("tensor made by these kernels", name, written)]
        tensor.last, tensor.uses = len(kernels) - 1, tensor.uses + 1
    chosen: set[str] = set()
    used = [0.0] * len(kernels)
    for tensor in sorted(tensors.values(), key=lambda tensor: (tensor.size, tensor.first)):
        span = range(tensor.first, tensor.last + 1)
        fits = all(used[at] + tensor.size <= room for at in span)
        if tensor.uses > 1 and fits and tensor.name not in travels:
            chosen.add(tensor.name)
            for at in span:
                used[at] += tensor.size
    return tuple(_staying(kernel, at, tensors, chosen, level) for at, kernel in enumerate(kernels))


@dataclass
class _Tensor:
    """A tensor's lifetime in a list of kernels, and whether one of them makes it."""

    name: str
    size: float
    first: int
    last: int
    made: bool
    uses: int = 0


def _tensors(kernels: Sequence[Work]) -> dict[str, _Tensor]:
    tensors: dict[str, _Tensor] = {}
    for at, kernel in enumerate(kernels):
        for made, group in ((False, kernel.reads), (True, kernel.writes)):
            for name, n in group.items():
                tensor = tensors.setdefault(name, _Tensor(name, 0.0, at, at, made))
                tensor.size = max(tensor.size, single(f"bytes of {name}", n, zero=True))
                tensor.last, tensor.uses = at, tensor.uses + 1
    return tensors


def _staying(
    kernel: Work, at: int, tensors: Mapping[str, _Tensor], chosen: Set[str], level: str
) -> Work:
    def enters(name: str) -> bool:
        return name not in chosen or (not tensors[name].made and tensors[name].first == at)

    reads = {name: n for name, n in kernel.reads.items() if enters(name)}
    writes = {name: n for name, n in kernel.writes.items() if name not in chosen}
    read = sum(n * kernel.passes.get(name, 1) for name, n in reads.items())
    saved = kernel.bytes - read
    saved -= sum(writes.values())
    if not saved:
        return kernel
    passes = {name: n for name, n in kernel.passes.items() if name in reads}
    others = {**kernel.others, level: kernel.others.get(level, 0) + saved}
    return replace(kernel, reads=reads, writes=writes, passes=passes, others=others)
