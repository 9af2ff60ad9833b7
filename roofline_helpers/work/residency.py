"""What need not travel: tensors between two kernels that fit on the chip."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

from roofline_helpers._checks import name_of, single, text
from roofline_helpers.work.fusion import all_work
from roofline_helpers.work.work import Work


def resident(
    *kernels: Work,
    capacity: float,
    level: str = "vmem",
    keep: Sequence[str] = (),
    onward: Sequence[str] = (),
    travels: Sequence[str] = (),
) -> tuple[Work, ...]:
    """Return kernels that run one after another, with what fits on the chip between them there.

    The kernels themselves count every tensor that they read and write at the main memory: one end
    of what a program may move. This is the other end. A tensor that a kernel makes and a later one
    reads, or that several read, stays on the chip from its first kernel to its last if there is
    room for it: for the whole of it, together with all others that stay at that time. The
    smallest get a place first. What a kernel only streams through takes no room.

    Neither end is what happens: a compiler that places tensors (XLA in a TPU's VMEM) does so with
    the program at hand, a cache (a GPU's L2) also holds what streams through. Where both ends give
    one verdict it doesn't matter.

    Parameters
    ----------
    *kernels : Work
        In order; tensors are matched by name. A kernel may read a part of one.
    capacity : float
        Bytes that the chip has for such tensors.
    level : str
        Where they stay. Their bytes are counted there, as `Work.others`.
    keep : sequence of str
        Tensors made here that are needed afterwards too, and so are written all the same.
    onward : sequence of str
        Tensors that what runs next reads, the next layer for instance: they stay until the end
        if they fit.
    travels : sequence of str
        Tensors that never stay, such as weights.

    Raises
    ------
    BadType
        Nothing, or something that isn't a `Work`; counts that are arrays.
    BadValue
        A capacity that is not a number of at least 0.
    UnknownName
        `keep` or `onward` names a tensor that no kernel makes.

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
    where = text("level", level)
    tensors = _tensors(kernels)
    for name in keep:
        tensors[_made(name, tensors)].leaves = True
    for name in onward:
        each = tensors[_made(name, tensors)]
        each.last, each.uses = len(kernels) - 1, each.uses + 1
        each.leaves = name in keep
    chosen: set[str] = set()
    used = [0.0] * len(kernels)
    for each in sorted(tensors.values(), key=lambda tensor: (tensor.size, tensor.first)):
        span = range(each.first, each.last + 1)
        fits = all(used[at] + each.size <= room for at in span)
        if each.uses > 1 and fits and each.name not in travels:
            chosen.add(each.name)
            for at in span:
                used[at] += each.size
    return tuple(_staying(kernel, at, tensors, chosen, where) for at, kernel in enumerate(kernels))


@dataclass
class _Tensor:
    """A tensor's life in a list of kernels: from one of them to another, and out of the list."""

    name: str
    size: float
    first: int
    last: int
    made: bool
    uses: int = 0
    leaves: bool = False


def _made(name: str, tensors: Mapping[str, _Tensor]) -> str:
    return name_of("tensor made by these kernels", name, [t for t in tensors if tensors[t].made])


def _tensors(kernels: Sequence[Work]) -> dict[str, _Tensor]:
    tensors: dict[str, _Tensor] = {}
    for at, kernel in enumerate(kernels):
        for made, group in ((False, kernel.reads), (True, kernel.writes)):
            for name, n in group.items():
                each = tensors.setdefault(name, _Tensor(name, 0.0, at, at, made))
                each.size = max(each.size, single(f"bytes of {name}", n, zero=True))
                each.last, each.uses = at, each.uses + 1
    return tensors


def _staying(
    kernel: Work, at: int, tensors: Mapping[str, _Tensor], chosen: Set[str], level: str
) -> Work:
    """Return a kernel without the bytes of what stays on the chip."""

    def enters(name: str) -> bool:
        return name not in chosen or (not tensors[name].made and tensors[name].first == at)

    reads = {name: n for name, n in kernel.reads.items() if enters(name)}
    writes = {t: n for t, n in kernel.writes.items() if t not in chosen or tensors[t].leaves}
    saved = kernel.bytes - sum(n * kernel.passes.get(t, 1) for t, n in reads.items())
    saved -= sum(writes.values())
    if not saved:
        return kernel
    passes = {name: n for name, n in kernel.passes.items() if name in reads}
    others = {**kernel.others, level: kernel.others.get(level, 0) + saved}
    return replace(kernel, reads=reads, writes=writes, passes=passes, others=others)
