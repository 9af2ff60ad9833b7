"""The class that every count by hand returns."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from roofline_helpers.common.checks import (
    BadValue,
    Number,
    all_true,
    broadcast,
    folded,
    mapping,
    name_of,
    plain,
    quantity,
    shown,
    text,
)
from roofline_helpers.common.dtypes import dtype as dtype_of
from roofline_helpers.common.show import Facts, cell, facts_html, si, span
from roofline_helpers.roofline import NETWORK


@dataclass(frozen=True, repr=False)
class Work(Facts):
    """FLOPs and bytes of one kernel.

    Parameters
    ----------
    name : str
    reads, writes : mapping of str to number
        Bytes of each tensor, by name: `fuse` joins kernels by these.
    matrix_flops, vector_flops : number
        FLOPs on each unit, the transcendentals among the vector unit's.
    transcendentals : number
        How many are exponentials and their like.
    dtype : str
        The type that the unit computes in: it decides which peak applies.
    passes : mapping of str to number
        How often a tensor in `reads` is read, where that isn't once.
    others : mapping of str to number
        Bytes across other boundaries: an on-chip level, or "network".
    kind : str
        Operation, of attention with its phase: the name under which `expected` and laws look for
        measured kernels. Of "relu", "swiglu", "layernorm" there are none. Empty for kernels that
        have no such name: dropout, batched matmuls, fused kernels, …
    dims : mapping of str to number
        Sizes as the family names them: ``{"m": 256, "n": 4096, "k": 4096}``.

    Raises
    ------
    BadType, BadValue, UnknownName
        Here and in all methods: a count that is not a finite number of at least 0; no byte at any
        memory; more transcendentals than vector FLOPs; passes over a tensor that is not read; one
        level under two spellings, or that has no traffic; arrays whose shapes don't fit.

    Examples
    --------
    >>> from roofline_helpers.work import matmul
    >>> job = matmul(1024, 1024, 1024, "bf16")
    >>> job.flops, job.bytes, round(job.intensity, 1)
    (2147483648, 6291456, 341.3)
    """

    name: str
    reads: Mapping[str, Number]
    writes: Mapping[str, Number]
    matrix_flops: Number = 0
    vector_flops: Number = 0
    transcendentals: Number = 0
    dtype: str = "fp32"
    passes: Mapping[str, Number] = field(default_factory=dict)
    others: Mapping[str, Number] = field(default_factory=dict)
    kind: str = ""
    dims: Mapping[str, Number] = field(default_factory=dict)

    def __post_init__(self) -> None:
        set_field = partial(object.__setattr__, self)
        text("name", self.name)
        set_field("dtype", dtype_of(self.dtype))
        numbers: list[tuple[str, Number]] = []
        for flops in ("matrix_flops", "vector_flops", "transcendentals"):
            set_field(flops, quantity(flops, getattr(self, flops), zero=True))
            numbers.append((flops, getattr(self, flops)))
        for group in ("reads", "writes", "passes", "others"):
            checked = {}
            for tensor, n in mapping(group, getattr(self, group)).items():
                name, zero = f"{group}[{tensor!r}]", group in ("reads", "writes")
                checked[tensor] = quantity(name, n, zero=zero)
                numbers.append((name, checked[tensor]))
            set_field(group, MappingProxyType(checked))
        broadcast(numbers)
        kind = f"tensor read by {self.name}"
        passes = {name_of(kind, tensor, self.reads): n for tensor, n in self.passes.items()}
        set_field("passes", MappingProxyType(passes))
        set_field("others", MappingProxyType(folded("others", self.others)))
        set_field("dims", MappingProxyType(dict(self.dims)))
        for tensor, n in passes.items():
            if not all_true(n >= 1):
                raise BadValue(f"passes over {tensor} must be at least 1, got {shown(n)}")
        if "hbm" in self.others:
            raise BadValue("traffic at hbm follows from reads and writes: change those")
        if not all_true(self.bytes > 0) and not any(level != NETWORK for level in self.others):
            raise BadValue(f"{self.name} must read or write at least one byte, got none")
        if not all_true(self.transcendentals <= self.vector_flops):
            raise BadValue(
                f"transcendentals must be at most the vector FLOPs, got "
                f"{shown(self.transcendentals)} and {shown(self.vector_flops)}"
            )

    def _facts(self) -> dict[str, str]:
        facts = {"FLOPs": span(self.flops, lambda n: si(n, "FLOP"))}
        for level, moved in self.traffic.items():
            facts["bytes" if level == "hbm" else level] = span(moved, lambda n: si(n, "B"))
        return facts | {"intensity": span(self.intensity, lambda n: f"{cell(n)} FLOP/byte")}

    def _title(self) -> str:
        return f"{self.name} in {self.dtype}"

    def _repr_html_(self) -> str:
        tensors = {"reads": ", ".join(self.reads), "writes": ", ".join(self.writes)}
        return facts_html(self._title(), {**tensors, **self._facts()})

    @property
    def flops(self) -> Number:
        """FLOPs on both units."""
        return self.matrix_flops + self.vector_flops

    @property
    def read_bytes(self) -> Number:
        """Bytes read from the main memory."""
        return sum(n * self.passes.get(tensor, 1) for tensor, n in self.reads.items())

    @property
    def written_bytes(self) -> Number:
        """Bytes written to the main memory."""
        return sum(self.writes.values())

    @property
    def bytes(self) -> Number:
        """Bytes across the main memory's boundary."""
        return self.read_bytes + self.written_bytes

    @property
    def traffic(self) -> dict[str, Number]:
        """Bytes across each boundary – "hbm", and those of `others`."""
        return {"hbm": self.bytes, **self.others}

    @property
    def intensity(self) -> Any:
        """Arithmetic intensity at the main memory, FLOP/byte; infinite if nothing crosses that."""
        if all_true(self.bytes > 0):
            return plain(np.divide(self.flops, self.bytes))
        return math.inf

    def intensity_at(self, level: str) -> Any:
        """Return the arithmetic intensity at another boundary, FLOP/byte."""
        where = name_of(f"level of {self.name}", level, self.traffic)
        return plain(np.divide(self.flops, self.traffic[where]))

    def reading(self, **passes: Any) -> Work:
        """Return the same work with some tensors read more than once: ``reading(x=3)``."""
        return replace(self, passes={**self.passes, **passes})

    def with_traffic(self, **others: Any) -> Work:
        """Return the same work with its bytes at other boundaries: ``with_traffic(vmem=1e9)``."""
        return replace(self, others={**self.others, **folded("others", others)})
