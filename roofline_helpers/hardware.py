"""Chips: peaks, memory and links, each figure with the page that it was read on.

The figures are data, in `data/chips.toml`; this module only reads and checks it.
Everything is in SI base units (FLOP/s, byte, byte/s, Hz, W), per chip, and dense: a headline
that assumes 2:4 sparsity is kept next to the figure, never in its place.
"""

from __future__ import annotations

import datetime
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from html import escape
from importlib import resources
from typing import TYPE_CHECKING, Any

from roofline_helpers._checks import BadType, UnknownName, name_of, shown, size
from roofline_helpers.dtypes import dtype as dtype_of
from roofline_helpers.roofline import UNITS, Roofline
from roofline_helpers.show import facts_html, si

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class Source:
    """A page that figures were read on."""

    key: str
    title: str
    url: str
    read: datetime.date
    kind: str


@dataclass(frozen=True, repr=False)
class Figure:
    """One number of a chip: shows itself with its source.

    `basis` is "vendor" (the vendor's own text), "secondary" (somebody quoting it), "derived"
    (arithmetic; `note` gives the formula) or "unverified". `sparse` is the headline that assumes
    2:4 sparsity, where there is one. ``float(figure)`` is the value.
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
        link = f'<a href="{escape(self.source.url)}">{title}</a>'
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
class Memory:
    """One memory level: capacity in bytes, bandwidth in byte/s where it is published."""

    technology: str
    capacity: Figure
    bandwidth: Figure | None = None


@dataclass(frozen=True, repr=False)
class Chip:
    """A device with peaks, memory levels and links.

    `matrix` and `vector` hold the dense peak of each data type (FLOP/s) on that unit, `memory`
    the levels, "hbm" first, and `links` what the chip can send, one way (byte/s). `devices` is
    the number of devices that JAX shows for one chip.
    """

    key: str
    name: str
    vendor: str
    kind: str
    year: int
    aliases: tuple[str, ...]
    device_kinds: tuple[str, ...]
    devices: int
    matrix: Mapping[str, Figure]
    vector: Mapping[str, Figure]
    memory: Mapping[str, Memory]
    links: Mapping[str, Figure]
    clock: Figure | None = None
    power: Figure | None = None

    def __repr__(self) -> str:
        facts = ", ".join(f"{path} {figure}" for path, figure in self.figures().items())
        return f"<{self.name}: {facts}>"

    def _repr_html_(self) -> str:
        facts = {path: str(figure) for path, figure in self.figures().items()}
        return facts_html(self.name, facts)

    @property
    def half(self) -> str:
        """The matrix unit's 16-bit type, "bf16", or "fp16" on a chip that has no bf16."""
        return "bf16" if "bf16" in self.matrix else "fp16"

    def peak(self, dtype: Any = "bf16", unit: str | None = None) -> Figure:
        """Return the dense peak for a data type, FLOP/s.

        Parameters
        ----------
        dtype : str or data type
            The type that the unit computes in.
        unit : {"matrix", "vector"}, optional
            Which unit. If not given: the matrix unit where it has the type, else the vector unit.

        Raises
        ------
        UnknownName
            No such type, or none on this chip: the message lists what it has.
        """
        wanted = dtype_of(dtype)
        if unit is None:
            table: Mapping[str, Figure] = {**self.vector, **self.matrix}
            where = self.name
        else:
            unit = name_of("unit", unit, UNITS)
            where = f"the {unit} unit of {self.name}"
            table = self.matrix if unit == "matrix" else self.vector
        if wanted not in table:
            raise UnknownName(f"{where} has no {wanted} peak. Allowed: {', '.join(table) or '-'}")
        return table[wanted]

    def roofline(
        self,
        dtype: Any = "bf16",
        unit: str | None = None,
        levels: Sequence[str] = ("hbm",),
        network: str | None = None,
    ) -> Roofline:
        """Return the published roofline for a data type.

        Its vector ceiling is the fp32 peak of the vector unit, or with unit="vector" the peak
        of the data type itself.

        Parameters
        ----------
        dtype : str or data type
            The type that the unit computes in.
        unit : {"matrix", "vector"}, optional
            As in `peak`.
        levels : str or sequence of str
            Memory levels, outermost first. Only levels with a published bandwidth have a roof.
        network : str, optional
            A link of the chip, for instance "ici": adds a network ceiling.

        Raises
        ------
        UnknownName
            No such type, unit, level or link on this chip, or no published bandwidth.
        BadType, BadValue
            Something that is not a name; no level at all.
        """
        if isinstance(levels, str):
            levels = (levels,)
        if not isinstance(levels, Sequence):
            raise BadType(f"levels must be a name or a sequence of names, got {shown(levels)}")
        unit = None if unit is None else name_of("unit", unit, UNITS)
        peak = self.peak(dtype, unit)
        known = {name: m.bandwidth.value for name, m in self.memory.items() if m.bandwidth}
        chosen = {}
        for level in levels:
            kind = f"memory level with a published bandwidth on {self.name}"
            name = name_of(kind, level, known)
            chosen[name] = known[name]
        link = None
        if network is not None:
            link = self.links[name_of(f"link of {self.name}", network, self.links)].value
        vector = peak if unit == "vector" else self.vector.get("fp32")
        label = f"{self.name} {dtype_of(dtype)}" + (" vector" if unit == "vector" else "")
        return Roofline(
            peak=peak.value,
            levels=chosen,
            vector=vector.value if vector else None,
            network=link,
            name=label,
        )

    def per_device(self) -> Chip:
        """Return what one JAX device has: a v7x chip is two devices, most chips are one."""
        n = self.devices
        if n == 1:
            return self
        memory = {
            name: Memory(m.technology, m.capacity.over(n), m.bandwidth and m.bandwidth.over(n))
            for name, m in self.memory.items()
        }
        return replace(
            self,
            name=f"{self.name} (1 of {n} devices)",
            devices=1,
            matrix={name: figure.over(n) for name, figure in self.matrix.items()},
            vector={name: figure.over(n) for name, figure in self.vector.items()},
            memory=memory,
            links={name: figure.over(n) for name, figure in self.links.items()},
            power=self.power and self.power.over(n),
        )

    def figures(self) -> dict[str, Figure]:
        """Return every figure of the chip by its path, for instance "memory.hbm.bandwidth"."""
        found = {f"matrix.{name}": figure for name, figure in self.matrix.items()}
        found |= {f"vector.{name}": figure for name, figure in self.vector.items()}
        for level, memory in self.memory.items():
            found[f"memory.{level}.capacity"] = memory.capacity
            if memory.bandwidth:
                found[f"memory.{level}.bandwidth"] = memory.bandwidth
        found |= {f"links.{name}": figure for name, figure in self.links.items()}
        found |= {n: f for n, f in (("clock", self.clock), ("power", self.power)) if f}
        return found


def chip(given: Any) -> Chip:
    """Return a chip by name, alias, or JAX device.

    Parameters
    ----------
    given : str, Chip or jax.Device
        "v7x", "ironwood", "NVIDIA H100 80GB HBM3", or anything with a `device_kind`.
        Case, spaces, "-" and "_" don't matter.

    Raises
    ------
    UnknownName
        No such chip; the message gives the nearest and lists all.
    BadType
        Not a name, and nothing with a `device_kind`.

    Examples
    --------
    >>> chip("ironwood").name
    'TPU v7x'
    """
    if isinstance(given, Chip):
        return given
    catalogue = _catalogue()
    spellings = {
        spelling: each.key
        for each in catalogue.values()
        for spelling in (each.name, *each.aliases, *each.device_kinds)
    }
    asked = getattr(given, "device_kind", given)
    return catalogue[name_of("chip", asked, catalogue, spellings)]


def all_chips() -> tuple[Chip, ...]:
    """Return every chip of the catalogue: TPUs by generation, then GPUs."""
    return tuple(_catalogue().values())


def chips() -> pandas.DataFrame:
    """Return the catalogue as a table: one row a chip, units in the column names.

    A missing value means that the chip has no such unit or that nothing is published.
    """
    import pandas

    rows = []
    for each in all_chips():
        row: dict[str, Any] = {"chip": each.name, "year": each.year}
        for name in ("bf16", "fp8", "int8", "fp32"):
            figure = each.matrix.get(name)
            row[f"{name} TFLOP/s"] = figure.value / 1e12 if figure else None
        vector = each.vector.get("fp32")
        row["vector fp32 TFLOP/s"] = vector.value / 1e12 if vector else None
        roof = each.roofline(each.half)
        row["memory GB"] = each.memory["hbm"].capacity.value / 1e9
        row["memory GB/s"] = roof.bandwidth / 1e9
        row["ridge FLOP/byte"] = roof.ridge
        row["JAX devices"] = each.devices
        rows.append(row)
    return pandas.DataFrame(rows).set_index("chip")


@cache
def _catalogue() -> dict[str, Chip]:
    text = resources.files("roofline_helpers").joinpath("data", "chips.toml").read_text("utf-8")
    data = tomllib.loads(text)
    sources = {name: Source(key=name, **entry) for name, entry in data["sources"].items()}
    return {name: _chip(name, entry, sources) for name, entry in data["chips"].items()}


def _chip(name: str, entry: dict[str, Any], sources: Mapping[str, Source]) -> Chip:
    def figure(unit: str, data: dict[str, Any]) -> Figure:
        fields = {**data, "source": sources[data["source"]], "value": float(data["value"])}
        return Figure(unit=unit, **fields)

    def table(unit: str, data: dict[str, Any]) -> dict[str, Figure]:
        return {name: figure(unit, each) for name, each in data.items()}

    memory = {
        level: Memory(
            technology=data.get("technology", level),
            capacity=figure("byte", data["capacity"]),
            bandwidth=figure("byte/s", data["bandwidth"]) if "bandwidth" in data else None,
        )
        for level, data in entry["memory"].items()
    }
    return Chip(
        key=name,
        name=entry["name"],
        vendor=entry["vendor"],
        kind=entry["kind"],
        year=entry["year"],
        aliases=tuple(entry["aliases"]),
        device_kinds=tuple(entry["device_kinds"]),
        devices=entry["devices"],
        matrix=table("FLOP/s", entry["matrix"]),
        vector=table("FLOP/s", entry.get("vector", {})),
        memory=memory,
        links=table("byte/s", entry.get("links", {})),
        clock=figure("Hz", entry["clock"]) if "clock" in entry else None,
        power=figure("W", entry["power"]) if "power" in entry else None,
    )
