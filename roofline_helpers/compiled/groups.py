"""Kernels that belong together: by scope, by line of code, by what they do. Slow ones first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from roofline_helpers._checks import name_of
from roofline_helpers.compiled.kernel import CompiledKernel
from roofline_helpers.hlo import Row

NOWHERE = "(no scope)"


@dataclass(frozen=True)
class Group:
    """Kernels of one scope, line or role: totals over all their launches.

    `seconds` is the roof's least time of those that nothing overlaps, `cycle_seconds` the
    compiler's own where it gives one.

    Examples
    --------
    >>> from roofline_helpers.compiled import records
    >>> group = records()["attention-1024", "v5e"].groups("role")[0]
    >>> group.name, len(group.kernels)
    ('matmul bqhd,bkhd->bhqk with k, q, with a reduction', 1)
    """

    name: str
    kernels: tuple[CompiledKernel, ...]

    @property
    def seconds(self) -> float:
        """Least seconds of the kernels that run by themselves."""
        alone = (kernel for kernel in self.kernels if not kernel.row.overlaps)
        return sum(kernel.roof_seconds or 0.0 for kernel in alone)

    @property
    def cycle_seconds(self) -> float:
        """Seconds of the compiler's cycles, as far as it gives them."""
        return sum(kernel.cycle_seconds or 0.0 for kernel in self.kernels)

    @property
    def longest(self) -> float:
        """The larger of both times: neither alone tells of every kernel."""
        return max(self.seconds, self.cycle_seconds)

    @property
    def flops(self) -> float:
        """FLOPs, as far as they are known."""
        return sum(kernel.matrix_flops + kernel.vector_flops for kernel in self.kernels)

    @property
    def matrix_flops(self) -> float:
        """FLOPs of products of matrices."""
        return sum(kernel.matrix_flops for kernel in self.kernels)

    @property
    def hbm_bytes(self) -> int:
        """Bytes of the main memory."""
        return sum(kernel.hbm_bytes for kernel in self.kernels)

    @property
    def limit(self) -> str:
        """The ceiling that most of its time goes to; "" where nothing takes any."""
        by_limit: dict[str, float] = {}
        for kernel in self.kernels:
            if kernel.limit and not kernel.row.overlaps:
                by_limit[kernel.limit] = by_limit.get(kernel.limit, 0.0) + (
                    kernel.roof_seconds or 0
                )
        return max(by_limit, key=lambda name: by_limit[name], default="")

    @property
    def line(self) -> str:
        """The line of code that takes most of its time; "" where none is known."""
        by_line: dict[str, float] = {}
        for kernel in self.kernels:
            if kernel.row.source is not None:
                line = str(kernel.row.source)
                by_line[line] = by_line.get(line, 0.0) + (kernel.roof_seconds or 0.0)
        return max(by_line, key=lambda line: by_line[line], default="")


def place(row: Row) -> str:
    """Return where a kernel belongs, in words: its scope, else its function, and its pass."""
    where = row.scope or (row.source.function if row.source is not None else "") or NOWHERE
    return where if row.step == "forward" else f"{where} ({row.step})"


_KEYS: Mapping[str, Callable[[Row], str]] = {
    "scope": place,
    "line": lambda row: str(row.source or "(no line)"),
    "role": lambda row: row.role or row.name,
}


def grouped(kernels: Sequence[CompiledKernel], by: str) -> tuple[Group, ...]:
    """Return the groups of a program's kernels, those that take longest first.

    Parameters
    ----------
    kernels : sequence of CompiledKernel
        A program's.
    by : {"scope", "line", "role"}
        What kernels of one group have in common.

    Raises
    ------
    UnknownName
        Another way to group.
    """
    key = _KEYS[name_of("way to group kernels", by, _KEYS)]
    parts: dict[str, list[CompiledKernel]] = {}
    for kernel in kernels:
        parts.setdefault(key(kernel.row), []).append(kernel)
    groups = [Group(name, tuple(members)) for name, members in parts.items()]
    return tuple(sorted(groups, key=lambda group: (-group.longest, -group.hbm_bytes)))
