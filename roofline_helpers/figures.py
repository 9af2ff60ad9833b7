"""Figures: numbers that carry the page they were read on, or the record they were measured in."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from html import escape

from roofline_helpers._checks import name_of, size
from roofline_helpers.show import si


@dataclass(frozen=True)
class Source:
    """A page that figures were read on, or the file of this repository that measured them.

    Examples
    --------
    >>> from roofline_helpers import chip
    >>> source = chip("v6e").peak("bf16").source
    >>> source.public, source.read.year
    (True, 2026)
    """

    key: str
    title: str
    url: str
    read: datetime.date
    kind: str

    @property
    def public(self) -> bool:
        """Whether `url` is a page's address, and not a path in this repository."""
        return self.url.startswith("https://")


@dataclass(frozen=True, repr=False)
class Figure:
    """One number of a chip: shows itself with its source.

    `basis` is "vendor" (the vendor's own text), "secondary" (somebody quoting it), "derived"
    (arithmetic; `note` gives the formula), "measured" (by us or by somebody who says how) or
    "unverified". `sparse` is the headline that assumes
    2:4 sparsity, where there is one. ``float(figure)`` is the value.

    Examples
    --------
    >>> from roofline_helpers import chip
    >>> peak = chip("v6e").peak("bf16")
    >>> peak.value, peak.unit, peak.basis
    (918000000000000.0, 'FLOP/s', 'vendor')
    """

    value: float
    unit: str
    source: Source
    basis: str
    note: str = ""
    sparse: float | None = None

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        unit = self.unit.replace("byte", "B")
        return si(self.value, unit, {"FLOP/s": "T", "B/s": "G"}.get(unit), 4)

    def _line(self) -> str:
        """Return what it shows of itself: its value, where that is from, what else there is."""
        source = f"{self.source.title}, read {self.source.read:%Y-%m-%d}"
        return "; ".join(filter(None, [f"{self}, {self.basis}: {source}", self.note]))

    def __repr__(self) -> str:
        return f"<{self._line()}>"

    def _repr_html_(self) -> str:
        title = escape(self.source.title)
        link = f'<a href="{escape(self.source.url)}">{title}</a>' if self.source.public else title
        return f"<p>{escape(self._line()).replace(title, link, 1)}</p>"

    def over(self, n: int) -> Figure:
        """Return the share that one of `n` equal parts has of it.

        Raises
        ------
        BadType, BadValue
            n is not a whole number of at least 1.
        """
        n = int(size("n", n))
        sparse = None if self.sparse is None else self.sparse / n
        note = f"{self.note + '; ' if self.note else ''}the chip's figure / {n}"
        return replace(self, value=self.value / n, sparse=sparse, basis="derived", note=note)


@dataclass(frozen=True)
class Link:
    """The links of one kind that a chip has: `count` of them, each carrying `rate` one way.

    `latency` is what one hop takes, in seconds, where anybody printed it. ``float(link)`` is what
    the chip can send over all of them at once.

    Examples
    --------
    >>> from roofline_helpers import chip
    >>> ici = chip("v6e").links["ici"]
    >>> ici.count, f"{ici.total}"
    (4, '400 GB/s')
    """

    rate: Figure
    count: int = 1
    latency: Figure | None = None

    @property
    def total(self) -> Figure:
        """Bytes per second that the chip can send, one way, over all its links of this kind."""
        if self.count == 1:
            return self.rate
        note = f"{self.rate.note + '; ' if self.rate.note else ''}{self.count} links x {self.rate}"
        return replace(self.rate, value=self.count * self.rate.value, basis="derived", note=note)

    def __float__(self) -> float:
        return self.total.value

    def over(self, n: int) -> Link:
        """Return the share that one of `n` devices has of it; raise as `Figure.over`."""
        return replace(self, rate=self.rate.over(n))


@dataclass(frozen=True)
class Reached:
    """What anybody measured on a chip: ceilings that software really reached.

    A ceiling is the fastest that was sustained, so that nothing of the same kind beats it.

    Parameters
    ----------
    matrix, vector : mapping of str to Figure
        FLOP/s by data type: the best of all shapes that were tried.
    streams : mapping of str to Figure
        Byte/s of the main memory by what streams: "read", "write", "copy", "add" (two in, one
        out) and so on, those of the tensor's bytes that are read and those that are written.
    sizes : mapping of str to mapping of int to float
        FLOP/s of the product of two square matrices, by data type and side.

    Examples
    --------
    >>> from roofline_helpers import chip
    >>> f"{chip('h200').reached.matrix['bf16']}"
    '678.7 TFLOP/s'
    """

    matrix: Mapping[str, Figure] = field(default_factory=dict)
    vector: Mapping[str, Figure] = field(default_factory=dict)
    streams: Mapping[str, Figure] = field(default_factory=dict)
    sizes: Mapping[str, Mapping[int, float]] = field(default_factory=dict)

    def stream(self, name: str | None = None) -> Figure | None:
        """Return one stream, or that of reading: the memory ceiling. None if none is known.

        Nearly all kernels read more than they write. A mix of both is slower on most memories, so
        compare a kernel that copies with ``stream("copy")``, and one that only writes with
        ``stream("write")``. Where nobody measured reading alone, it is the fastest stream.

        Raises
        ------
        UnknownName
            That stream was not measured; the message lists those that were.
        """
        if name is not None:
            return self.streams[name_of("stream that was measured", name, self.streams)]
        fastest = max(self.streams.values(), key=float, default=None)
        return self.streams.get("read", fastest)

    def over(self, n: int) -> Reached:
        """Return the share that one of `n` equal parts has of it."""

        def shares(figures: Mapping[str, Figure]) -> dict[str, Figure]:
            return {name: figure.over(n) for name, figure in figures.items()}

        sizes = {
            dtype: {side: rate / n for side, rate in by_side.items()}
            for dtype, by_side in self.sizes.items()
        }
        return Reached(shares(self.matrix), shares(self.vector), shares(self.streams), sizes)
